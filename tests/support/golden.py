"""Golden logs: what a released version really wrote, kept and folded by every later one.

A log is `<name>.jsonl.gz`, one line a message; `<name>.json` says what it folds to. They are recorded by
`python -m tests.support.golden_story <name>` and never made again: a later version records its own.

As a program, `python -m tests.support.golden FILE` prints what a log comes to in this process.
"""

import gzip
import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, json

from schemas import codec
from schemas.subjects import STATE_ROOT
from services.control.deciding.current import CurrentCatalog
from services.control.deciding.reconcile import decide
from services.control.deciding.silence import Silence
from services.fleet.state import FleetState
from services.log.stored import Stored

FOLDER = Path(__file__).parents[1] / "data" / "golden"
CUTS = 20


class Line(Struct, frozen=True):
    """One message of LOG. Payloads are text: JSON, or what stood there in its place."""

    seq: int
    subject: str
    payload: str


class Comes(Struct, frozen=True):
    """What a log folds to."""

    sequence: int
    digest: str
    """sha256 of `FleetState.dump`."""


def write(name: str, log: Iterable[Stored]) -> Comes:
    """Keep a log under `name`, and what it comes to today."""
    lines = [Line(each.sequence, each.subject, each.payload.decode()) for each in log]
    packed = b"".join(json.encode(line) + b"\n" for line in lines)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(packed, mtime=0))
    state = folded(lines)
    comes = Comes(state.sequence, state.digest())
    (FOLDER / f"{name}.json").write_bytes(json.format(json.encode(comes)) + b"\n")
    return comes


def read(path: Path) -> list[Line]:
    """A log's messages in their order."""
    with gzip.open(path) as file:
        return [json.decode(line, type=Line) for line in file]


def recorded(path: Path) -> Comes:
    """What it came to when it was recorded."""
    return json.decode(
        path.with_name(path.name.replace(".jsonl.gz", ".json")).read_bytes(), type=Comes
    )


def folded(lines: Iterable[Line]) -> FleetState:
    """The state after these messages."""
    state = FleetState()
    for line in lines:
        state.apply(line.seq, line.subject, line.payload.encode())
    return state


def restarted(lines: Sequence[Line], cut: int) -> FleetState:
    """As a program that starts at `cut` has it: the server's last message a subject, then the tail."""
    last = {line.subject: line for line in lines[:cut] if line.subject.startswith(STATE_ROOT)}
    return folded([*sorted(last.values(), key=lambda line: line.seq), *lines[cut:]])


def decided(state: FleetState) -> str:
    """sha256 of what control would write a minute after the log's end, with every node heard."""
    nodes = {held.document.node: 0.1 for held in state.infos.values()}
    silence = Silence(hearing_seconds=600.0, nodes=nodes)
    models = CurrentCatalog().read(state).catalog.models
    drafts = decide(state, models, silence, codec.seconds(state.newest_control_at) + 60).drafts
    return hashlib.sha256(codec.encode(drafts)).hexdigest()


def cuts(lines: Sequence[Line]) -> list[int]:
    """Where to restart: spread over the whole log, both ends included."""
    return sorted({round(len(lines) * each / CUTS) for each in range(CUTS + 1)})


def account(path: Path) -> str:
    """All that must be the same in every process: digests at each cut, and the decision at the end."""
    lines = read(path)
    digests = [restarted(lines, cut).digest() for cut in cuts(lines)]
    return "\n".join([*digests, decided(folded(lines))])


if __name__ == "__main__":
    sys.stdout.write(account(Path(sys.argv[1])) + "\n")
