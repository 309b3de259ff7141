"""Runs one schedule and says what it came past. `python -m tests.sim.run --seeds 2000`."""

# ruff: noqa: T201 - it prints what it found.

import argparse
import sys
import time
from collections import Counter
from itertools import count

from msgspec import Struct

from schemas import codec, subjects
from schemas.api import ApplyCatalog
from schemas.documents import Endpoint, Genesis
from schemas.events import Event, log_prefix
from schemas.frames import Accepted
from schemas.ids import EventId
from services.control.commanding.commands import Actor, plan_apply
from services.fleet.standing import stand_all
from services.log.append import Sealed
from tests.builders import LOG_ID
from tests.sim.agents import Machine
from tests.sim.controls import Command, Control
from tests.sim.engines import Engine
from tests.sim.faults import strike
from tests.sim.invariants import Invariants
from tests.sim.plan import Plan, draw, source
from tests.sim.routers import Router
from tests.sim.world import Violation, World

SETTLE_SECONDS = 600.0
STILL_SECONDS = 120.0


class Done(Struct):
    """What one schedule was."""

    seed: int
    steps: int
    events: int
    passes: int
    digest: str
    seen: Counter[str]


class Run:
    """One schedule."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = world = World(plan.seed)
        self.invariants = Invariants(world)
        world.watchers.append(self.invariants)
        self._starts = count(1)
        self._last = plan.applies[-1]
        genesis = Event(
            id=EventId("genesis"), log=log_prefix(LOG_ID), type="log.begun",
            at=codec.rfc3339(world.wall), src="control/control-1",
            data=codec.raw(Genesis(log_id=LOG_ID, format=1)),
        )  # fmt: skip
        world.put(Sealed(subjects.GENESIS, genesis.id, codec.encode(genesis)), 0)
        for number in range(plan.nodes):
            fabric = f"ib-{number % 2}"
            Machine(world, f"node-{number}", plan.cards, "h100-80gb", fabric).start_agent()
        self.controls = [self._control(f"control-{n + 1}") for n in range(plan.controls)]
        self.routers = [
            Router(world, f"router-{n + 1}", 1, self._find) for n in range(plan.routers)
        ]
        self._apply_next(0)
        strike(world, plan.faults, self.controls, self.routers, self._control)

    def _control(self, name: str) -> Control:
        return Control(self.world, name, next(self._starts))

    def _find(self, endpoint: Endpoint) -> Engine | None:
        for engine in self.world.machines[endpoint.node].engines:
            same = f"{engine.order.attempt}.{engine.run}" == endpoint.incarnation
            if engine.alive and engine.replica == endpoint.replica and same:
                return engine
        return None

    def _apply_next(self, number: int) -> None:
        """As one operator does: a catalog at its time, again until it is accepted, then the next one."""
        if number == len(self.plan.applies):
            return
        apply = self.plan.applies[number]
        actor = Actor("sim", "127.0.0.1", EventId(f"command-{number}"))
        request = ApplyCatalog(source=source(apply.models), prune_all=True)
        command = Command(plan_apply(request, actor))

        def give() -> None:
            if command.answer is not None:
                accepted = isinstance(command.answer, Accepted)
                self.world.check(accepted, f"refused: {command.answer}")
                self._apply_next(number + 1)
                return
            for control in self.controls:
                if control.speaks and control.leading and not command.given:
                    command.given = True
                    control.commands.append(command)
                    control.wake()
            self.world.kernel.after(2.0, give)

        self.world.kernel.after(max(0.0, apply.at - self.world.now), give)

    def run(self) -> Done:
        world = self.world
        world.kernel.run(self.plan.quiet_at + SETTLE_SECONDS)
        self._check_settled()
        head = world.log.head
        world.kernel.run(world.now + STILL_SECONDS)
        tried_for_ever = any(model.never for model in self._last.models)
        rest = [] if tried_for_ever else [m.subject for m in world.log.messages[head:]]
        world.check(not rest, f"nothing happens any more, and yet it writes {rest[:5]}")
        self.invariants.at_end()
        return Done(
            seed=self.plan.seed,
            steps=world.kernel.steps,
            events=world.log.head,
            passes=world.passes,
            digest=self.invariants.state.digest(),
            seen=world.seen,
        )

    def _check_settled(self) -> None:
        state, models = self.invariants.state, self.invariants.models()
        standings = stand_all(state, models, {})
        wanted = {each.name: each for each in self._last.models}
        self.world.check(set(models) == set(wanted), f"the catalog is {sorted(models)}")
        for name, model in models.items():
            entry = wanted[name]
            alive = [s for s in standings.get(name, []) if not s.gone]
            ready = [s for s in alive if s.serving and s.document.goal == "run"]
            placement = state.placement(name)
            told = placement is not None and placement.document.verdict != "placed"
            if not entry.never and not told:
                self.world.check(
                    len(ready) == len(alive) == model.replicas,
                    f"{name}: {len(ready)} ready of {len(alive)}, {model.replicas} wanted",
                )


def run(seed: int) -> Done:
    """One schedule by its seed. Raises Violation."""
    return Run(draw(seed)).run()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=100)
    options.add_argument("--first", type=int, default=1)
    chosen = options.parse_args()
    began, seen, steps, passes, failed = time.perf_counter(), Counter[str](), 0, 0, 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        try:
            done = run(seed)
        except Violation as violation:
            failed += 1
            print(f"seed {seed}: {violation}")
            continue
        seen += done.seen
        steps += done.steps
        passes += done.passes
    seconds = time.perf_counter() - began
    for what, number in sorted(seen.items()):
        print(f"{number:9} {what}")
    print(
        f"{chosen.seeds} schedules in {seconds:.1f} s ({chosen.seeds * 60 / seconds:.0f} a minute), "
        f"{steps // chosen.seeds} steps and {passes // chosen.seeds} passes each; {failed} failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
