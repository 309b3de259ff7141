import json
from pathlib import Path

import pytest

from ctl.failure import Exit
from ctl.main import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def items(told: str) -> dict[str, tuple[str, str]]:
    return {row["name"]: (row["value"], row["source"]) for row in json.loads(told)["items"]}


def test_each_value_is_shown_with_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: O8
    (tmp_path / "flotilla.toml").write_text("[router]\nidle-timeout = 'off'\n")
    monkeypatch.setenv("FLOTILLA_AGENT_CORES", "0")
    assert run(["config", "show", "-o", "json"]) == Exit.YES
    found = items(capfd.readouterr().out)
    assert found["router.idle-timeout"] == ("off", "flotilla.toml:2")
    assert found["agent.cores"] == ("0", "FLOTILLA_AGENT_CORES")
    assert found["agent.fabric"] == ("", "unset")
    assert found["router.listen"] == ("127.0.0.1:8000", "default")


def test_a_program_can_be_shown_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "agent", "-o", "json"]) == Exit.YES
    sections = {name.partition(".")[0] for name in items(capfd.readouterr().out)}
    assert sections == {"agent", "nats", "data", "log"}


def test_a_misspelt_setting_is_an_error_with_the_nearest_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: O8
    (tmp_path / "flotilla.toml").write_text("[router]\nidle-timeot = '5s'\n")
    assert run(["config", "show"]) == Exit.USAGE
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("flotilla.toml:2: error: unknown setting `idle-timeot`")
    assert "idle-timeout" in told.err


def test_the_verbs_of_an_operator_have_settings_like_every_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: O8
    (tmp_path / "flotilla.toml").write_text("[operator]\nserver = 'http://h:1'\n")
    monkeypatch.setenv("FLOTILLA_OPERATOR_TOKEN_FILE", "/t")
    assert run(["config", "show", "operator", "-o", "json"]) == Exit.YES
    assert items(capfd.readouterr().out) == {
        "data.dir": (".flotilla", "default"),
        "operator.server": ("http://h:1", "flotilla.toml:2"),
        "operator.token-file": ("/t", "FLOTILLA_OPERATOR_TOKEN_FILE"),
    }
