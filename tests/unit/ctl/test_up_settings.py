"""What `up` will run with: flags and environment, else what it ran with before."""

import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ctl.admitted import admit, admitted, reload, revoke
from ctl.doors import Doors, remember_doors
from ctl.failure import Exit, Failure
from ctl.join import create, list_all, revoke_one
from ctl.remembered import Ports, recall, remember
from ctl.up_plan import check_ports, programs
from ctl.up_settings import options, planned
from services.fleet.settings_table import settings_of
from services.log.permissions import User


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


def test_where_others_come_in_is_as_the_time_before_unless_named(tmp_path: Path) -> None:
    before = Doors(listen="127.0.0.2", tls_cert="/c.pem", tls_key="/k.pem", tls_ca="/ca.pem")
    remember_doors(tmp_path, before)
    data = {"data_dir": str(tmp_path)}
    assert planned(data, None).doors == before
    assert planned(data | {"up_listen": "127.0.0.3"}, None).doors.listen == "127.0.0.3"
    assert not planned(data | {"up_listen": "off"}, None).doors.is_open


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"up_listen": "0.0.0.0"}, "no host that others could reach"),
        ({"up_listen": "127.0.0.2", "up_tls_cert": "/c.pem"}, "go together"),
        ({"up_listen": "127.0.0.2", "up_tls_ca": "/c.pem"}, "--tls-ca is what others check"),
        ({"up_tls_cert": "/c.pem", "up_tls_key": "/k.pem"}, "name the address with --listen"),
    ],
)
def test_a_door_that_cannot_be_is_refused(
    tmp_path: Path, given: dict[str, str | None], said: str
) -> None:
    with pytest.raises(Failure) as raised:
        planned({"data_dir": str(tmp_path)} | given, None)
    assert raised.value.exit_code == Exit.USAGE
    assert said in "\n".join(raised.value.lines())


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(Failure, match=r"nothing can listen on 192\.0\.2\.1"):
        check_ports(Ports(), Doors(listen="192.0.2.1"))


def test_a_way_in_is_given_to_programs_by_files_and_clients_stay_on_loopback(
    tmp_path: Path,
) -> None:  # spec: T10, S1
    remember_doors(tmp_path, Doors(listen="127.0.0.2"))
    plan = planned({"data_dir": str(tmp_path)}, None)
    told = {name: child.environ for name, child in programs(plan).items()}
    assert told["router"]["FLOTILLA_ROUTER_LISTEN"] == "127.0.0.1:8000"
    assert told["control"]["FLOTILLA_CONTROL_LISTEN"] == "127.0.0.2:7400"
    assert told["control"]["FLOTILLA_NATS_USER"] == "control"
    assert told["agent"]["FLOTILLA_AGENT_ADDRESS"] == "127.0.0.2"
    for environ in (told["control"], told["agent"], told["router"]):
        assert environ["FLOTILLA_NATS_PASSWORD_FILE"].endswith(environ["FLOTILLA_NATS_USER"])


def test_a_password_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first, second = User("agent", "n1"), User("agent", "n2")
    admit(tmp_path, first)
    files = [tmp_path / "nats" / "users" / "agent.n1", tmp_path / "nats" / "users.conf"]
    password = files[0].read_text().strip()
    assert len(password) >= 43
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    admit(tmp_path, first, second)
    assert files[0].read_text().strip() == password
    assert [user.text for user in sorted(admitted(tmp_path))] == ["agent.n1", "agent.n2"]
    revoke(tmp_path, first)
    assert password not in files[1].read_text()
    assert '"agent.n2"' in files[1].read_text()
    assert not reload(tmp_path)


@pytest.mark.parametrize("name", ["Node", "a.b", "a b", "../a", "*", "n-x12345678"])
def test_a_name_that_nats_could_not_tell_apart_is_no_name(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(create, [name, "--data", str(tmp_path)])
    assert isinstance(done.exception, Failure)
    assert (done.exception.exit_code, done.exception.code) == (Exit.USAGE, "bad_name")


OWN = "this-one"


@pytest.fixture
def open_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of an `up --listen` whose own node is OWN."""
    monkeypatch.setenv("FLOTILLA_AGENT_NODE", OWN)
    remember_doors(tmp_path, Doors(listen="127.0.0.2"))
    return tmp_path


@pytest.mark.parametrize("verb", [create, revoke_one])
def test_the_node_of_up_itself_is_neither_joined_nor_shut_out(
    verb: click.Command, open_here: Path
) -> None:
    admit(open_here, User("agent", OWN))
    done = CliRunner().invoke(verb, [OWN, "--data", str(open_here)])
    assert isinstance(done.exception, Failure)
    assert (done.exception.exit_code, done.exception.code) == (Exit.REFUSED, "own_node")
    assert User("agent", OWN) in admitted(open_here)


def test_a_fleet_that_listens_and_lets_nobody_in_says_how_one_comes_in(open_here: Path) -> None:
    done = CliRunner().invoke(list_all, ["--data", str(open_here)])
    assert "`flotilla join create NODE` lets one in" in done.stderr
    assert "loopback" not in done.stderr


def test_a_join_file_that_is_there_is_not_written_over_and_another_is_asked_for(
    open_here: Path,
) -> None:
    (open_here / "node-2.join").write_text("kept")
    done = CliRunner().invoke(create, ["node-2", "--data", str(open_here)])
    assert isinstance(done.exception, Failure)
    assert done.exception.steps == ("flotilla join create node-2 --to OTHER",)
    assert "not written over" in done.exception.why
    assert (open_here / "node-2.join").read_text() == "kept"
