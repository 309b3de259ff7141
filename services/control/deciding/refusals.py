"""Why a node cannot take a shard, as values: the predicate that failed and its numbers. Pure."""

from typing import assert_never

from msgspec import Struct

from schemas.documents import NodeCondition, NodeRefusal
from schemas.ids import EngineName, NodeId


class NotAlive(Struct, frozen=True, tag="not_alive"):
    """The node is silent."""

    condition: NodeCondition


class NotReadable(Struct, frozen=True, tag="unreadable"):
    """What the node is, runs or should run is not known, for what stands on this subject."""

    subject: str


class EngineMissing(Struct, frozen=True, tag="engine_missing"):
    """The node has no such engine environment."""

    engine: EngineName
    found: tuple[EngineName, ...]


class EngineVersion(Struct, frozen=True, tag="engine_version"):
    """The environment there is another version than the catalog pins."""

    engine: EngineName
    wanted: str
    found: str


class OtherClass(Struct, frozen=True, tag="gpu_class"):
    """No card of the class."""

    wanted: str
    found: tuple[str, ...]


class TooFewCards(Struct, frozen=True, tag="too_few_cards"):
    """Not enough usable cards of the class; each card counts once, the first match wins."""

    wanted: int
    unhealthy: int
    held: int
    short_of_memory: int
    free: int


class NotWhole(Struct, frozen=True, tag="not_whole"):
    """A gang takes whole nodes: every card healthy, unused and free of foreign memory."""

    unhealthy: int
    held: int
    foreign: int


class NoFabric(Struct, frozen=True, tag="no_fabric"):
    """A gang needs nodes whose cards can reach each other."""


class FabricTooSmall(Struct, frozen=True, tag="fabric_too_small"):
    """The node is whole, but its fabric has too few such nodes."""

    fabric: str
    wanted: int
    whole: int


class TooFewCores(Struct, frozen=True, tag="too_few_cores"):
    """The node's cores are given to others."""

    wanted: float
    free: float


class TooLittleMemory(Struct, frozen=True, tag="too_little_memory"):
    """The node's memory is given to others."""

    wanted_bytes: int
    free_bytes: int


class NoPort(Struct, frozen=True, tag="no_port"):
    """Every port of the node's range is given."""

    first: int
    last: int


Refusal = (
    NotAlive
    | NotReadable
    | EngineMissing
    | EngineVersion
    | OtherClass
    | TooFewCards
    | NotWhole
    | NoFabric
    | FabricTooSmall
    | TooFewCores
    | TooLittleMemory
    | NoPort
)


class Unplaceable(Struct, frozen=True):
    """No node can take it, and the first predicate that each one failed."""

    refusals: dict[NodeId, Refusal]


def reason(refusal: Refusal) -> str:
    """A stable word for the predicate that failed."""
    return str(refusal.__struct_config__.tag)


def describe(refusal: Refusal) -> str:  # noqa: C901 - one flat case a refusal
    """The numbers, for people."""
    match refusal:
        case NotAlive(condition):
            return f"the node is {condition}"
        case NotReadable(subject):
            return f"what stands at {subject} could not be read"
        case EngineMissing(engine, found):
            return f"no engine {engine}; the node has {', '.join(found) or 'none'}"
        case EngineVersion(engine, wanted, found):
            return f"{engine} {found or 'of unknown version'}, the catalog pins {wanted}"
        case OtherClass(wanted, found):
            return f"no card of class {wanted}; the node has {', '.join(found) or 'no cards'}"
        case TooFewCards(wanted, unhealthy, held, short, free):
            return (
                f"wants {wanted} cards, {free} free "
                f"({held} held, {unhealthy} unhealthy, {short} short of memory)"
            )
        case NotWhole(unhealthy, held, foreign):
            return (
                f"not a whole node: {held} cards held, {unhealthy} not healthy, "
                f"{foreign} with foreign memory"
            )
        case NoFabric():
            return "the node belongs to no fabric"
        case FabricTooSmall(fabric, wanted, whole):
            return f"fabric {fabric} has {whole} whole nodes, {wanted} wanted"
        case TooFewCores(wanted, free):
            return f"wants {wanted:g} cores, {free:g} free"
        case TooLittleMemory(wanted, free):
            return f"wants {_mib(wanted)} MiB, {_mib(free)} MiB free"
        case NoPort(first, last):
            return f"no free port in {first}-{last}"
        case _:
            assert_never(refusal)


def _mib(number_bytes: int) -> int:
    return number_bytes >> 20


def summarize(unplaceable: Unplaceable) -> tuple[NodeRefusal, ...]:
    """Nodes by the predicate they failed, the commonest first; the detail is the first node's."""
    by_reason: dict[str, list[Refusal]] = {}
    for _, refusal in sorted(unplaceable.refusals.items()):
        by_reason.setdefault(reason(refusal), []).append(refusal)
    if not by_reason:
        return (NodeRefusal(reason="no_nodes", nodes=0, detail="no node has registered yet"),)
    counted = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        NodeRefusal(reason=word, nodes=len(found), detail=describe(found[0]))
        for word, found in counted
    )
