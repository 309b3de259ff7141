import pytest

from ctl.failure import Exit
from ctl.main import run

NOWHERE = ("--server", "http://127.0.0.1:9")
REASONED = (
    ("catalog", "apply", "FILE"),
    ("catalog", "rollback", "r1"),
    ("brake", "off"),
    ("journal", "mend", "s"),
    ("journal", "recover", "--from", "log"),
)


@pytest.mark.parametrize("verb", REASONED)
def test_a_reason_that_would_not_be_taken_is_refused_before_anything_is_asked(
    verb: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "-m", "r" * 2001, *NOWHERE]) == Exit.USAGE
    assert "2,001 characters; at most 2,000 are taken" in capfd.readouterr().err
    assert run([*verb, "-m", "a\x1b", *NOWHERE]) == Exit.USAGE
    assert "U+001B" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("catalog", "apply", "FILE", "--prune"),
        ("catalog", "rollback", "r1", "--prune"),
        ("journal", "recover", "--from", "log", "--prune"),
        ("journal", "mend"),
    ],
)
def test_a_name_that_is_too_long_is_refused_at_once(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "n" * 257, *NOWHERE]) == Exit.USAGE
    assert "257 characters; at most 256 are taken" in capfd.readouterr().err
