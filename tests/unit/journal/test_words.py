"""The command line of the journal, and how it says no."""

from pathlib import Path

import pytest

from services.fleet.telling.moments import AtSequence
from services.journal import __main__ as program
from services.journal.__main__ import Words, main, read_words
from services.runtime.failure import Exit, Failure

NOW = 1_800_000_000.0


def test_own_words_are_told_from_settings() -> None:
    words = ["export", "there", "--since", "5", "--nats-url", "nats://h:1", "--until=9"]
    settings = ("--nats-url", "nats://h:1")
    wanted = Words("export", Path("there"), AtSequence(5), AtSequence(9), settings)
    assert read_words(words, NOW) == wanted


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["export"], "usage", "`export` is not how a journal is asked"),
        (["export", "a", "b"], "usage", "`export a b`"),
        (["verify", "a"], "usage", "`verify a`"),
        (["purge", "a"], "usage", "`purge a`"),
        (["export", ""], "usage", "DIR is empty"),
        (["import", ""], "usage", "DIR is empty"),
        (["export", "a", "--output", "json"], "usage", "journal export takes no --output"),
        (["verify", "--output", "xml"], "usage", "`xml` is no form: table or json"),
        (["import", "a", "--since", "5"], "usage", "journal import takes no --since"),
        (["verify", "--until", "5"], "usage", "journal verify takes no --until"),
        (["verify", "--since", "noon"], "bad_moment", "`noon` is not a moment"),
    ],
)
def test_what_is_not_understood_is_refused(words: list[str], code: str, told: str) -> None:
    with pytest.raises(Failure) as refused:
        read_words(words, NOW)
    assert (refused.value.exit_code, refused.value.code) == (Exit.USAGE, code)
    assert told in refused.value.message


def test_which_fleet_is_meant_is_no_setting_and_is_said_in_what_to_type_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert read_words(["export", "d", "--data=there"], NOW).settings == ()
    monkeypatch.setattr("sys.argv", ["journal", "export", "", f"--data={tmp_path}"])
    assert main() == Exit.USAGE
    assert capsys.readouterr().err.splitlines()[-1].endswith("flotilla journal --help")
    failure = Failure(Exit.NOT_FOUND, "no_log", "", steps=["flotilla journal recover"])
    assert failure.lines()[-1] == f"  next: flotilla journal recover --data {tmp_path}"


def test_nats_that_cannot_be_reached_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("sys.argv", ["journal", "verify", "--nats-url", "nats://127.0.0.1:9"])
    assert main() == Exit.UNREACHABLE
    error, why = capsys.readouterr().err.splitlines()[-2:]
    assert error == "error: NATS at nats://127.0.0.1:9 cannot be reached [no_nats]"
    assert "refused" in why or "failed" in why


def test_help_names_the_verbs_and_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["journal", "--help"])
    assert main() == Exit.YES
    told = capsys.readouterr().out
    assert "flotilla journal export DIR" in told
    assert "--nats-url URL" in told
