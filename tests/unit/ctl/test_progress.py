import pytest

from ctl.progress import Progress


def test_a_terminal_sees_one_line_drawn_over(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(live=True)
    for text in ("loading 10%", "loading 20%", "loading 20%"):
        progress.step(text)
    progress.line("ready")
    told = capsys.readouterr()
    assert told.err == "\r\x1b[Kloading 10%\r\x1b[Kloading 20%\r\x1b[Kready\n"
    assert told.out == ""


def test_a_log_sees_each_step_once_without_its_percents(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(live=False)
    for text in ("loading 10%", "loading 20%", "answering"):
        progress.step(text)
    progress.line("router ended")
    progress.step("answering")
    assert capsys.readouterr().err == "loading\nanswering\nrouter ended\n"


def test_what_an_engine_says_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(live=True).step("loading \x1b[2J")
    assert capsys.readouterr().err == "\r\x1b[Kloading \\x1b[2J"
