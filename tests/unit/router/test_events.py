from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.events import HOLD_LIMIT, WholeEvents


def test_half_an_event_is_held_until_its_end_has_come() -> None:
    """# spec: T5, R3"""
    events = WholeEvents()
    assert events.feed(b"data: 1\n\ndata: 2") == b"data: 1\n\n"
    assert events.feed(b"2\n") == b""
    assert events.feed(b"\n") == b"data: 22\n\n"
    assert events.feed(b"data: 3\r\n\r\nda") == b"data: 3\r\n\r\n"
    assert events.rest() == b"da"
    assert events.rest() == b""


def test_knows_the_proper_end() -> None:
    events = WholeEvents()
    events.feed(b'data: {"content":"[DONE]"}\n\n')
    assert not events.done
    events.feed(b"data: [DO")
    events.feed(b"NE]\n\n")
    assert events.done
    without_blank_line = WholeEvents()
    without_blank_line.feed(b"data: [DONE]")
    without_blank_line.rest()
    assert without_blank_line.done


def test_an_endless_event_is_not_gathered_for_ever() -> None:
    events = WholeEvents()
    long = b"x" * (HOLD_LIMIT + 1)
    assert events.feed(long) == long


@settings(deadline=None)  # Machines may be slow.
@given(st.lists(st.text(alphabet="ab\n\r", max_size=6)))
def test_every_byte_passes_in_order(parts: list[str]) -> None:
    """# spec: T1"""
    events = WholeEvents()
    passed = b"".join(events.feed(part.encode()) for part in parts) + events.rest()
    assert passed == "".join(parts).encode()
