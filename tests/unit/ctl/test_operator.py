"""Where a verb looks: flag, environment, settings file, and the fleet of the data folder they name."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ctl.failure import Exit
from ctl.main import run
from ctl.operator import DEFAULT_SERVER, Operator, Verb
from ctl.remembered import Ports, remember


@click.command(cls=Verb)
@click.pass_obj
def look(operator: Operator) -> None:
    click.echo(f"{operator.server} {operator.token_file}")


def looked(*arguments: str) -> list[str]:
    done = CliRunner().invoke(look, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.split()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_data_folder_of_the_settings_file_is_looked_into_as_up_does(tmp_path: Path) -> None:
    # spec: O7, O8
    assert looked() == [DEFAULT_SERVER, ".flotilla/control/admin.token"]
    data = tmp_path / "elsewhere"
    data.mkdir()
    remember(data, Ports(control=9400))
    (tmp_path / "flotilla.toml").write_text(f"[data]\ndir = '{data}'\n")
    assert looked() == ["http://127.0.0.1:9400", f"{data}/control/admin.token"]


def test_flag_wins_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: O8
    (tmp_path / "flotilla.toml").write_text(
        "[operator]\nserver = 'http://file:1'\ntoken-file = '/file'\n"
    )
    assert looked() == ["http://file:1", "/file"]
    monkeypatch.setenv("FLOTILLA_OPERATOR_SERVER", "http://variable:1")
    assert looked() == ["http://variable:1", "/file"]
    flags = ("--server", "http://flag:1", "--token-file", "/flag")
    assert looked(*flags) == ["http://flag:1", "/flag"]


def test_a_wrong_setting_ends_a_verb_before_it_asks_anybody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: O8
    assert run(["status", "--server", "localhost:7400"]) == Exit.USAGE
    assert "write `http://HOST:PORT`" in capfd.readouterr().err
    (tmp_path / "flotilla.toml").write_text("[operator]\nsever = 'http://h:1'\n")
    assert run(["status"]) == Exit.USAGE
    assert "did you mean `server`?" in capfd.readouterr().err
