"""The mass-silence brake (R4): when half of the fleet falls silent at once, nothing is given up. Pure.

So many machines do not die together. It is a switch, a site's power, or something between them and
this process; what has fallen silent most likely runs on, and comes back.

- *Silent* is a node that could have been heard for 5 s and was not, or whose verdict says so and that
  has not been heard since hearing began.
- *Within 60 s* means that it became silent no more than 60 s ago: it was last heard in the last 65 s.
- *The fleet* is every node but those whose silence is older than that (lost for good, decommissioned,
  not switched on): these neither engage the brake nor hold it, and do not water it down either. Of nine
  nodes of which three have been lost for a week, four that fall silent together are more than half.
- It **engages** when more than half of the fleet, and at least three nodes, are silent.
- While it is on the fleet is measured as of the moment when it engaged: a node that was silent for
  longer by then stays left out; all others count, however long they are silent.
- It **ends by itself** once under a quarter of the fleet has been silent for 60 s without interruption,
  and this process has heard throughout: what it did not hear itself proves no calm.
- It **ends by command**, which pardons every silence that has begun by then: these nodes are left out of
  the fleet until they are heard again, so the same silence does not engage it anew. Another one may.

While it is on nobody is lost, nothing is given up and nothing is rebuilt. Nodes still become
unreachable, and their endpoints the last choice. What operators ask for goes on: other catalogs, rolls,
placement in the room there is. So does the end of what is above the wanted number, as when a lost node
comes back to what was rebuilt before.

What this needs from history stands in the log: the brake's own document, and in each verdict since when
the node is silent. How long a node has been silent is measured by this process and begins with its
hearing (L3), so a restart, a takeover, NATS away or a stall of this process neither engages the brake
nor ends it. In the first 5 s of hearing it stays as it is.

Once a silence has led to *lost*, only the log's time tells its age. So a lost node counts as silent for
longer after control was away than it could have been heard: it is left out sooner.
"""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from schemas import codec
from schemas.documents import ControlBrake, NodeVerdict
from schemas.ids import NodeId
from services.control.deciding.silence import Silence
from services.fleet.state import FleetState

SILENT_SECONDS = 5.0
"""A node that could have been heard for so long counts as silent."""
WINDOW_SECONDS = 60.0
CALM_SECONDS = 60.0
LEAST_SILENT = 3


class Fleet(NamedTuple):
    """Counts of nodes."""

    nodes: int
    silent: int
    aside: int = 0
    """Left out of both, yet not lost: silent for long in a fleet where silence alone loses none, or
    pardoned."""

    @property
    def in_mass_silence(self) -> bool:
        """More than half, and at least three."""
        return self.silent >= LEAST_SILENT and self.silent * 2 > self.nodes

    @property
    def calm(self) -> bool:
        """Under a quarter."""
        return self.silent == 0 or self.silent * 4 < self.nodes


class Brake(Struct, frozen=True):
    """The brake as it stands after this look."""

    on: bool
    fleet: Fleet
    written: ControlBrake | None = None
    """What is to be written of it, as `label`; None: nothing changed."""
    label: str = ""
    wait: float | None = None
    """Seconds from now after which it may end."""


def is_on(state: FleetState) -> bool:
    """As the log holds it."""
    held = state.brake.get(())
    return held is not None and held.document.engaged


def look(state: FleetState, silence: Silence, now: float) -> Brake:
    """Whether the brake is on now, and what to write of it. `now` is the fleet's clock."""
    held = state.brake.get(())
    fleet = muster(state, silence, now)
    hears = silence.hearing_seconds >= SILENT_SECONDS
    if held is None or not held.document.engaged:
        return _off(fleet, now, engages=hears and fleet.in_mass_silence)
    return _on(held.document, fleet, silence, now) if hears else Brake(True, fleet)


def _off(fleet: Fleet, now: float, *, engages: bool) -> Brake:
    if not engages:
        return Brake(False, fleet)
    document = ControlBrake(
        engaged=True, since=codec.rfc3339(now), silent=fleet.silent, nodes=fleet.nodes
    )
    return Brake(True, fleet, document, "brake.engaged")


def _on(document: ControlBrake, fleet: Fleet, silence: Silence, now: float) -> Brake:
    if not fleet.calm:
        if document.calm_since is None:
            return Brake(True, fleet)
        return Brake(True, fleet, replace(document, calm_since=None), "brake.held")
    if document.calm_since is None:
        easing = replace(document, calm_since=codec.rfc3339(now))
        return Brake(True, fleet, easing, "brake.eased", CALM_SECONDS)
    calm_seconds = min(now - codec.seconds(document.calm_since), silence.hearing_seconds)
    if calm_seconds < CALM_SECONDS:
        return Brake(True, fleet, wait=CALM_SECONDS - calm_seconds)
    return Brake(False, fleet, replace(document, engaged=False), "brake.released")


def muster(state: FleetState, silence: Silence, now: float) -> Fleet:
    """The fleet, and how many of it are silent."""
    earliest, pardoned = _bounds(state, now)
    nodes = silent = aside = 0
    for key, info in state.infos.items():
        node = info.document.node
        if silence.nodes.get(node, SILENT_SECONDS) < SILENT_SECONDS:
            nodes += 1  # Heard: nearly every node in nearly every pass.
            continue
        held = state.verdicts.get(key)
        began = _began(node, None if held is None else held.document, silence, now)
        if began is None:
            nodes += 1
        elif began.counted >= earliest and began.logged > pardoned:
            nodes += 1
            silent += 1
        else:
            aside += not began.lost
    return Fleet(nodes, silent, aside)


def _bounds(state: FleetState, now: float) -> tuple[float, float]:
    """Silence that began before the first, or by the second, is left out. Seconds since 1970."""
    held = state.brake.get(())
    window = WINDOW_SECONDS + SILENT_SECONDS
    if held is None:
        return now - window, 0.0
    if held.document.engaged:
        return codec.seconds(held.document.since) - window, 0.0
    return now - window, codec.seconds(held.at) if held.document.released_by else 0.0


class _Began(NamedTuple):
    """When a silence began. Seconds since 1970."""

    counted: float
    """As far as it is known to have lasted: once lost by the log, before that by this process."""
    logged: float
    """By the log where a verdict stands, else by this process."""
    lost: bool = False


def _began(
    node: NodeId, verdict: NodeVerdict | None, silence: Silence, now: float
) -> _Began | None:
    """None: it is not silent."""
    seconds = silence.of(node)
    stands = verdict is not None and verdict.condition != "alive"
    if seconds < SILENT_SECONDS and (node in silence.nodes or not stands):
        return None
    measured = now - seconds
    if verdict is None or not stands:
        return _Began(measured, measured)
    logged = codec.seconds(verdict.silent_since or verdict.since)
    lost = verdict.condition == "lost"
    return _Began(logged if lost else measured, logged, lost)
