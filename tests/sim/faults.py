"""What fails, when, for how long. The plan says it; nothing is drawn on the way."""

from collections.abc import Callable, Sequence
from functools import partial

from tests.sim.agents import Machine
from tests.sim.controls import Control
from tests.sim.plan import Fault, Kind
from tests.sim.program import Program
from tests.sim.routers import Router
from tests.sim.world import World

LOST_SHARE = 0.3
"""Of answers, while some are lost."""


def strike(
    world: World,
    faults: Sequence[Fault],
    controls: list[Control],
    routers: list[Router],
    start_control: Callable[[str], Control],
) -> None:
    """Each fault at its time. A control that was killed is replaced in `controls` by its next start."""
    made = _Faults(world, controls, routers, start_control)
    for fault in faults:
        world.kernel.after(fault.at, partial(made.strike, fault))


class _Faults:
    def __init__(
        self,
        world: World,
        controls: list[Control],
        routers: list[Router],
        start_control: Callable[[str], Control],
    ) -> None:
        self.world = world
        self.controls = controls
        self.routers = routers
        self.start_control = start_control
        self._by_kind: dict[Kind, Callable[[Fault], None]] = {
            "control_kill": self._control_kill,
            "control_pause": self._control_pause,
            "control_cut": lambda fault: self._cut(self._one(controls, fault), fault),
            "router_cut": self._router_cut,
            "agent_kill": self._agent_kill,
            "node_off": self._node_off,
            "node_cut": lambda fault: self._node_cut(self._machine(fault), fault),
            "many_cut": self._many_cut,
            "nats_down": self._nats_down,
            "engine_crash": self._engine_crash,
            "answers_lost": self._answers_lost,
        }

    def strike(self, fault: Fault) -> None:
        self.world.seen[f"fault {fault.kind}"] += 1
        self._by_kind[fault.kind](fault)

    def _one(self, programs: Sequence[Program], fault: Fault) -> Program:
        return programs[fault.target % len(programs)]

    def _machine(self, fault: Fault) -> Machine:
        machines = list(self.world.machines.values())
        return machines[fault.target % len(machines)]

    def _cut(self, program: Program, fault: Fault) -> None:
        program.set_link(False)
        self.world.kernel.after(fault.seconds, lambda: program.set_link(True))

    def _control_kill(self, fault: Fault) -> None:
        at = fault.target % len(self.controls)
        old = self.controls[at]
        old.kill()
        for command in old.commands:
            command.given = False

        def begin() -> None:
            self.controls[at] = self.start_control(old.name)

        self.world.kernel.after(fault.seconds, begin)

    def _control_pause(self, fault: Fault) -> None:
        program = self._one(self.controls, fault)
        program.pause()
        self.world.kernel.after(fault.seconds, program.go_on)

    def _router_cut(self, fault: Fault) -> None:
        router = self.routers[fault.target % len(self.routers)]
        router.excused = True
        self._cut(router, fault)

    def _agent_kill(self, fault: Fault) -> None:
        machine = self._machine(fault)
        machine.fall()
        machine.kill_agent()
        self.world.kernel.after(fault.seconds, machine.start_agent)

    def _node_off(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.on:
            machine.fall()
            machine.power_off()
            self.world.kernel.after(fault.seconds, machine.power_on)

    def _node_cut(self, machine: Machine, fault: Fault) -> None:
        machine.fall()
        if machine.agent is not None:
            self._cut(machine.agent, fault)

    def _many_cut(self, fault: Fault) -> None:
        machines = list(self.world.machines.values())
        for machine in machines[: len(machines) * 2 // 3]:
            self._node_cut(machine, fault)

    def _nats_down(self, fault: Fault) -> None:
        self.world.set_nats(False)
        self.world.kernel.after(fault.seconds, lambda: self.world.set_nats(True))

    def _engine_crash(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.engines:
            machine.crash(machine.engines[fault.target % len(machine.engines)])

    def _answers_lost(self, fault: Fault) -> None:
        def heal() -> None:
            self.world.lost_answers = 0.0

        self.world.lost_answers = LOST_SHARE
        self.world.kernel.after(fault.seconds, heal)
