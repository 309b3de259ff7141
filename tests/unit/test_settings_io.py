"""The file of settings, and what a person sees of wrong ones."""

from pathlib import Path

import pytest

from services.fleet.settings import Resolved, SettingFaults
from services.settings_io import from_command_line, load, or_exit


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_needs_no_file() -> None:
    made = load("control", {}, {})
    assert isinstance(made, Resolved)
    assert made.duration("control.tick") == 1.0


def test_reads_the_named_file_else_the_one_of_the_environment_else_the_one_here(
    tmp_path: Path,
) -> None:
    # spec: O8
    for name, tick in (("flotilla.toml", "2s"), ("other.toml", "3s"), ("named.toml", "4s")):
        (tmp_path / name).write_text(f'[control]\ntick = "{tick}"\n')
    environ = {"FLOTILLA_CONFIG": str(tmp_path / "other.toml")}
    named = ["--config", "named.toml"]
    ticks: list[float | None] = []
    for argv, variables in (([], {}), ([], environ), (named, environ)):
        made = from_command_line("control", argv, variables)
        assert isinstance(made, Resolved)
        ticks.append(made.duration("control.tick"))
    assert ticks == [2.0, 3.0, 4.0]


def test_a_named_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    messages: list[str] = []
    for name in ("none.toml", "latin.toml", "."):
        made = load("control", {}, {}, Path(name))
        assert isinstance(made, SettingFaults)
        messages += [f"{fault.file}: {fault.message}" for fault in made.faults]
    assert messages == [
        "none.toml: cannot be read: No such file or directory",
        "latin.toml: cannot be read: it is not UTF-8",
        ".: cannot be read: Is a directory",
    ]


def test_a_program_with_wrong_settings_tells_them_all_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # spec: O8
    (tmp_path / "flotilla.toml").write_text('[control]\ntick = "soon"\n')
    with pytest.raises(SystemExit) as ended:
        or_exit("control", ["--lisen", "x"], {"FLOTILLA_CONTROL_NAMES": "x"})
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "flotilla.toml:2: error: `control.tick`: `soon` is not a duration; "
        "write for example `90s`, `15m`, `2h` or `off`",
        "FLOTILLA_CONTROL_NAMES: error: this variable is no setting; "
        "did you mean `FLOTILLA_CONTROL_NAME`?",
        "--lisen: error: unknown flag of control; did you mean `--listen`?",
    ]


def test_help_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        or_exit("agent", ["--help"], {})
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: flotilla agent ")
