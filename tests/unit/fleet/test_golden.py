"""Logs that released versions wrote, under today's code and in other surroundings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import codec
from schemas.events import Event
from services.fleet.families import FAMILIES, family_of
from tests.support.golden import FOLDER, account, cuts, folded, read, recorded, restarted

ROOT = Path(__file__).parents[3]
GOLDEN = sorted(FOLDER.glob("*.jsonl.gz"))
SURROUNDINGS = [
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "4294967295", "TZ": "America/St_Johns", "LC_ALL": "C.UTF-8"},
]


def test_there_is_a_golden_log() -> None:
    assert GOLDEN


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_folds_to_what_was_recorded(path: Path) -> None:  # spec: L4, L5
    state = folded(read(path))
    assert (state.sequence, state.digest()) == (recorded(path).sequence, recorded(path).digest)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_a_restart_at_any_cut_comes_to_the_lived_state(path: Path) -> None:  # spec: L4
    lines = read(path)
    assert {restarted(lines, cut).digest() for cut in cuts(lines)} == {recorded(path).digest}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
@pytest.mark.parametrize("surroundings", SURROUNDINGS, ids=lambda each: each["TZ"])
def test_other_seeds_zones_and_locales_change_nothing(
    path: Path, surroundings: dict[str, str]
) -> None:  # spec: L4
    other = subprocess.run(
        [sys.executable, "-m", "tests.support.golden", str(path)],
        cwd=ROOT,
        env=os.environ | surroundings,
        capture_output=True,
        check=True,
    )
    assert other.stdout.decode().strip() == account(path)


def test_the_newest_log_tells_of_every_family() -> None:
    lines = [line for line in read(GOLDEN[-1]) if line.subject.startswith("flotilla.log.s.")]
    found = {
        family.table for line in lines if (known := family_of(line.subject)) for family in known[:1]
    }
    assert found == {family.table for family in FAMILIES}
    events: list[Event] = [codec.decode_event(line.payload.encode()) for line in lines]
    assert any(bytes(event.data).startswith(b'{"gone":true') for event in events)
