"""A state read from STATE is the one that was lived, whatever stands in the log."""

import random
from collections.abc import Iterable

import pytest

from schemas import subjects
from schemas.ids import ModelName, NodeId
from services.fleet.state import FleetState
from services.log.documents import fold, superseded
from services.log.stored import Stored
from tests.builders import LOG_ID, Script, a_node, a_replica, a_shard, an_event

SUBJECTS = (
    subjects.node_info(NodeId("node-1")),
    subjects.node_shard(NodeId("node-1"), 0),
    subjects.replica(ModelName("tiny"), 0),
    "flotilla.log.s.future.thing",
)


def a_payload(source: random.Random, subject: str, number: int) -> bytes:
    good = {SUBJECTS[0]: a_node(cores=number), SUBJECTS[1]: a_shard(run=number)}.get(
        subject, a_replica(generation=number)
    )
    return source.choice(
        [
            b'{"garbage',
            an_event(good, id_=f"e{number}"),
            an_event(good, id_=f"e{number}", version=2),
            an_event(good, id_=f"e{number}", version=2, optional=True),
            an_event(good, id_=f"e{number}", log=type(LOG_ID)("f" * 32)),
            an_event(good, id_=f"e{number}").replace(b'"data":{', b'"data":{"gone":true,"id":"x",'),
        ]
    )


async def folded(documents: Iterable[Stored]) -> FleetState:
    state = FleetState()
    await fold(state, sorted(documents, key=lambda stored: stored.sequence))
    return state


async def rebuilt(log: list[Stored]) -> FleetState:
    """As it is read, on the last message of each subject and their past."""
    last = {stored.subject: stored for stored in log}
    state = await folded(last.values())
    past = [
        stored
        for subject, below in superseded(state)
        for stored in log
        if stored.subject == subject and stored.sequence < below
    ]
    return await folded([*past, *last.values()]) if past else state


# spec: L4
@pytest.mark.parametrize("seed", range(200))
async def test_a_state_read_anew_is_the_one_that_was_lived(seed: int) -> None:
    source = random.Random(seed)
    script = Script()
    log = [Stored(*script.log[0])]
    for number in range(2, source.randrange(3, 16)):
        subject = source.choice(SUBJECTS)
        payload = a_payload(source, subject, number)
        script.state.apply(number, subject, payload)
        log.append(Stored(number, subject, payload))
    assert (await rebuilt(log)).dump() == script.state.dump()
