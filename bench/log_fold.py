"""`fold`: documents decoded and applied a second, by CPU time, from memory."""

import gc
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time, time
from typing import TypeVar

from bench.fleet import Fleet, Size
from bench.measuring import table
from schemas import codec
from services.control.deciding.reconcile import decide
from services.control.deciding.silence import Silence
from services.fleet.families import family_of
from services.fleet.state import FleetState

T = TypeVar("T")

MANY = 1000


def run(options: Namespace) -> int:
    size = Size(options.nodes, options.replicas, options.models)
    fleet = Fleet(size, codec.rfc3339(time()))
    messages = [
        (n, e.subject, e.payload) for n, e in enumerate(fleet.sealed(fleet.documents.values()), 1)
    ]
    gc.collect()
    gc.freeze()
    gc.disable()  # As control does while it reads a state.
    folded, state = _best(options.rounds, lambda: _fold(messages))
    envelopes, _ = _best(options.rounds, lambda: [codec.decode_event(m[2]) for m in messages])
    gc.enable()
    gc.freeze()
    for sequence, event in enumerate(fleet.sealed(fleet.ending()), len(messages) + 1):
        state.apply(sequence, event.subject, event.payload)
    hears = Silence(hearing_seconds=0.0)
    models = fleet.catalog.models
    decided, decision = _best(options.rounds, lambda: decide(state, models, hears, time()))
    for sequence, event in enumerate(fleet.sealed(fleet.undone_ending()), len(messages) + 3):
        state.apply(sequence, event.subject, event.payload)
    settled, nothing = _best(options.rounds, lambda: decide(state, models, hears, time()))
    if nothing.drafts or not decision.drafts:
        raise AssertionError("a settled fleet needs nothing, one with a replica missing something")
    count, megabytes = len(messages), sum(len(m[2]) for m in messages) / 1e6
    rows = [
        ("decode and apply", f"{folded:.3f}", f"{count / folded:,.0f} documents/s"),
        *_of_each_family(options.rounds, messages),
        ("decode the envelope alone", f"{envelopes:.3f}", f"{count / envelopes:,.0f} events/s"),
        ("full pass, nothing to do", f"{settled:.3f}", ""),
        ("full pass, one replica missing", f"{decided:.3f}", f"{len(decision.drafts)} documents"),
    ]
    sys.stdout.write(
        f"{count:,} documents, {megabytes:.0f} MB; the best of {options.rounds} rounds\n\n"
        + table(("what", "CPU seconds", ""), rows)
        + "\n"
    )
    return 0


def _of_each_family(
    rounds: int, messages: list[tuple[int, str, bytes]]
) -> Iterator[tuple[str, str, str]]:
    """Of the families with many documents, each alone."""
    by_family: dict[str, list[tuple[int, str, bytes]]] = {}
    for message in messages:
        found = family_of(message[1])
        assert found is not None, message[1]
        by_family.setdefault(found[0].table, [messages[0]]).append(message)
    gc.disable()
    for family, own in by_family.items():
        if len(own) > MANY:
            spent, _ = _best(rounds, partial(_fold, own))
            size = sum(len(message[2]) for message in own) / len(own)
            rate = f"{len(own) / spent:,.0f} documents/s of {size:,.0f} bytes"
            yield f"of these, {family}", f"{spent:.3f}", rate
    gc.enable()


def _fold(messages: list[tuple[int, str, bytes]]) -> FleetState:
    state = FleetState()
    for sequence, subject, payload in messages:
        state.apply(sequence, subject, payload)
    return state


def _best(rounds: int, work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of the quickest round, and what the last one gave."""
    best = float("inf")
    for left in range(rounds - 1, -1, -1):
        began = process_time()
        result = work()
        best = min(best, process_time() - began)
        if left:
            del result  # Before the next round begins: its end must not count.
            continue
        return best, result
    raise AssertionError("no rounds")
