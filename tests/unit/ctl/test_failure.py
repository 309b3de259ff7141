from ctl.failure import Exit, Failure
from ctl.typed import typed


def test_what_to_do_comes_last() -> None:
    failure = Failure(
        Exit.REFUSED, "conflict", "no", why="because", steps=["flotilla status"], details=["a:1: x"]
    )
    assert failure.lines() == [
        "a:1: x",
        "error: no [conflict]",
        "  why:  because",
        f"  next: {typed('flotilla status')}",
    ]


def test_a_step_is_told_as_it_must_be_typed() -> None:
    assert typed("flotilla status", {}) == "flotilla status"
    assert typed("flotilla status", {"UV_RUN_RECURSION_DEPTH": "1"}) == "uv run flotilla status"
    assert typed("flotilla status", {"UV": "/bin/uv"}) == "uv run flotilla status"
    assert typed("less x.log", {"UV_RUN_RECURSION_DEPTH": "1"}) == "less x.log"
