"""What `up` will run with: flags and environment, else what it ran with before."""

from pathlib import Path

import click
import pytest

from ctl.failure import Exit, Failure
from ctl.remembered import Ports, recall, remember
from ctl.up_plan import check_ports, programs
from ctl.up_settings import options, planned
from services.fleet.settings_table import settings_of


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_of_up_has_its_flag() -> None:  # spec: O8
    flags = {flag for option in options() for flag in option.opts}
    wanted = {f"--{row.flag}" for row in settings_of("up")} - {"--nats-url"}
    assert wanted <= flags
    assert all(isinstance(option, click.Option) and option.help for option in options())


def test_ports_are_the_ones_of_the_time_before_unless_named(tmp_path: Path) -> None:  # spec: O7
    before = Ports(router=9001, control=9002, nats=9003, engines=(18000, 18099))
    remember(tmp_path, before)
    plan = planned({"data_dir": str(tmp_path), "up_control_port": "9400"}, None)
    assert plan.ports == Ports(router=9001, control=9400, nats=9003, engines=(18000, 18099))


def test_a_default_that_is_named_wins_over_the_time_before(tmp_path: Path) -> None:
    remember(tmp_path, Ports(router=9001))
    assert planned({"data_dir": str(tmp_path), "up_port": "8000"}, None).ports.router == 8000


def test_a_torn_memory_is_no_memory(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text('{"router": 90')
    assert recall(tmp_path) is None


def test_the_programs_are_given_their_ports_and_listen_on_loopback_only() -> None:
    plan = planned({"up_port": "9000", "up_engine_ports": "18000-18099"}, None)
    told = {
        name: {key.removeprefix("FLOTILLA_"): text for key, text in child.environ.items()}
        for name, child in programs(plan).items()
    }
    assert told["router"]["ROUTER_LISTEN"] == "127.0.0.1:9000"
    assert told["agent"]["AGENT_PORTS"] == "18000-18099"
    listeners = [
        text for environ in told.values() for key, text in environ.items() if "LISTEN" in key
    ]
    assert len(listeners) == 4
    assert all(text.startswith("127.0.0.1:") for text in listeners)


def test_two_programs_cannot_be_given_one_port() -> None:
    with pytest.raises(Failure) as raised:
        check_ports(Ports(router=9000, agent=9000))
    assert raised.value.exit_code == Exit.REFUSED
    assert "port 9000 is given to both --port and --agent-port" in raised.value.message
