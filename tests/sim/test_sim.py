"""Schedules from seeds: nothing that must hold is ever broken, and the same seed is the same schedule."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.run import Done, run
from tests.support.examples import rounds

SEEDS = rounds("SIM_SEEDS", 40)
FIRST = 1000

MET = {
    "a batch was fenced",
    "a batch was sent again",
    "a lead was claimed",
    "a node was lost",
    "a request met no engine",
    "a stream was begun",
    "event brake.engaged",
    "event brake.released",
    "event endpoints.gone",
    "event placement.unplaceable",
    "event replica.draining",
    "event replica.gone",
    "event shard.failed",
    "fault nats_down",
}
"""What the seeds of every run come past: one that never met it would prove nothing of it."""


@pytest.fixture(scope="module")
def done() -> list[Done]:
    return [run(seed) for seed in range(FIRST, FIRST + SEEDS)]


# spec: L2 L3 L4 L7 L8 R1 R2 R4 R7 P5
def test_what_must_hold_holds_in_every_schedule_and_all_that_can_happen_happened(
    done: list[Done],
) -> None:
    seen = sum((each.seen for each in done), Counter[str]())
    assert not MET - set(seen)


# spec: L4
def test_another_hash_seed_changes_nothing(done: list[Done]) -> None:
    told = "from tests.sim.run import run; print(run(1001).digest, run(1002).digest)"
    again = subprocess.run(
        [sys.executable, "-c", told],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        check=True,
    )
    assert again.stdout.decode().split() == [done[1].digest, done[2].digest]
