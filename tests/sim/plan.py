"""A schedule as data, drawn from its seed before anything runs: the fleet, what operators do, what fails."""

from random import Random
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "control_kill", "control_pause", "control_cut", "agent_kill", "node_off", "node_cut",
    "nats_down", "engine_crash", "router_cut", "answers_lost", "many_cut",
]  # fmt: skip
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]


class Fault(Struct, frozen=True):
    """From `at` on for `seconds`; `target` is drawn anew among what there is, modulo its number."""

    at: float
    kind: Kind
    target: int
    seconds: float


class Entry(Struct, frozen=True):
    """One model of a catalog."""

    name: str
    replicas: int
    version: int
    cards: int
    nodes: int = 1
    never: bool = False
    grace: int = 60


class Apply(Struct, frozen=True):
    """A catalog becomes the current one."""

    at: float
    models: tuple[Entry, ...]


class Plan(Struct, frozen=True):
    """`quiet_at`: no fault and no operator after it."""

    seed: int
    nodes: int
    cards: int
    controls: int
    routers: int
    applies: tuple[Apply, ...]
    faults: tuple[Fault, ...]
    quiet_at: float


def draw(seed: int) -> Plan:
    """The same plan for the same seed, for ever."""
    random = Random(seed)
    quiet_at = 900.0
    nodes = random.randint(2, 12)
    first = tuple(_entry(random, n) for n in range(random.randint(1, 6)))
    applies = [Apply(5.0, first)]
    for _ in range(random.randint(0, 6)):
        applies.append(
            Apply(random.uniform(30.0, quiet_at - 60), _changed(random, applies[-1].models))
        )
    faults = tuple(
        Fault(
            at=random.uniform(10.0, quiet_at - 120),
            kind=random.choice(KINDS),
            target=random.randrange(1 << 16),
            seconds=random.choice([2.0, 4.0, 8.0, 30.0, 100.0]),
        )
        for _ in range(random.randint(0, 12))
    )
    return Plan(
        seed=seed,
        nodes=nodes,
        cards=8,
        controls=random.randint(1, 3),
        routers=random.randint(1, 2),
        applies=tuple(sorted(applies, key=lambda each: each.at)),
        faults=tuple(sorted(faults, key=lambda each: each.at)),
        quiet_at=quiet_at,
    )


def _entry(random: Random, number: int) -> Entry:
    return Entry(
        name=f"model-{number}",
        replicas=random.randint(0, 4),
        version=1,
        cards=random.choice([0, 1, 1, 2, 4, 8]),
        never=random.random() < 0.1,
        grace=random.choice([10, 60]),
    )


def _changed(random: Random, models: tuple[Entry, ...]) -> tuple[Entry, ...]:
    found = list(models)
    match random.randrange(4):
        case 0 if found:
            found.pop(random.randrange(len(found)))
        case 1:
            number = max((int(m.name.removeprefix("model-")) for m in found), default=0) + 1
            found.append(_entry(random, number))
        case 2 if found:
            at = random.randrange(len(found))
            old = found[at]
            found[at] = Entry(
                name=old.name, replicas=old.replicas, version=old.version + 1, cards=old.cards,
                nodes=old.nodes, never=random.random() < 0.2, grace=old.grace,
            )  # fmt: skip
        case 3 if found:
            at = random.randrange(len(found))
            old = found[at]
            found[at] = Entry(
                name=old.name, replicas=random.randint(0, 5), version=old.version, cards=old.cards,
                nodes=old.nodes, never=old.never, grace=old.grace,
            )  # fmt: skip
        case _:
            pass
    return tuple(found)


def source(models: tuple[Entry, ...]) -> str:
    """As a catalog."""
    lines = ["models:"]
    for each in models:
        word = "never-ready" if each.never else "weights"
        lines.append(f"  {each.name}:")
        lines.append(f"    engine: {'vllm' if each.cards else 'llamacpp'}")
        lines.append(f"    source: /models/{word}-{each.name}-{each.version}")
        if each.cards:
            lines.append(f"    gpu: {{class: h100-80gb, count: {each.cards}}}")
        else:
            lines.append("    cpu: {cores: 2, memory: 1GiB}")
        lines.append(f"    nodes: {each.nodes}")
        lines.append(f"    replicas: {each.replicas}")
        lines.append(f"    drain_grace: {each.grace}s")
    return "\n".join(lines) if models else "models: {}"
