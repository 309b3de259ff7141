"""Events as lines: every payload comes back as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import LogId
from services.journal.lines import decode, encode
from services.log.stored import Stored
from tests.builders import AT, NOW, a_node, an_event

payloads = st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5
).map(lambda value: json.dumps({"data": value}).encode())


@given(payload=payloads, sequence=st.integers(1, 2**53))
def test_every_payload_comes_back_byte_for_byte(payload: bytes, sequence: int) -> None:
    stored = Stored(sequence, "flotilla.log.s.a", payload, NOW)
    line = encode(stored)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["seq"] == sequence
    assert decode(line[:-1]) == stored


def test_an_event_stands_in_its_line_as_it_is() -> None:
    payload = an_event(a_node(), log=LogId("a" * 32))
    line = encode(Stored(7, "flotilla.log.s.node.node-1.info", payload, NOW))
    head = b'{"seq":7,"at":"' + AT.encode() + b'","subject":"flotilla.log.s.node.node-1.info"'
    assert line == head + b',"event":' + payload + b"}\n"


@pytest.mark.parametrize(
    "payload",
    [b"", b"no JSON", b' {"a": 1}', b'{"a":\n1}', b'{"a": "\xff"}', b"[1]", b'{"a": 1} {}'],
)
def test_what_is_not_one_line_of_json_stands_in_base64(payload: bytes) -> None:
    line = json.loads(encode(Stored(1, "flotilla.log.e.a", payload)))
    assert "event" not in line
    assert decode(encode(Stored(1, "flotilla.log.e.a", payload))).payload == payload


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"seq":1,"at":"","subject":"a"}',
        b'{"seq":1,"at":"","subject":"a","raw":"%"}',
        b'{"seq":1,"at":"noon","subject":"a","raw":""}',
    ],
)
def test_what_is_no_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"line of a journal|isoformat"):
        decode(line)
