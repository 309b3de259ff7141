"""A join file, read and unpacked."""

import stat
from pathlib import Path

import pytest
import structlog

from schemas import codec
from schemas.joining import FORMAT, Joining
from services.agent import joining
from services.agent.config import configure
from services.fleet.settings import Resolved, resolve

JOINING = Joining(
    flotilla_join=FORMAT,
    node="node-2",
    url="tls://127.0.0.2:4222",
    user="agent.node-2",
    password="a secret",
    ca="a certificate",
    control="http://127.0.0.2:7400",
)


def resolved(*flags: tuple[str, str], data: Path) -> Resolved:
    found = resolve("agent", "", {}, dict(flags) | {"data-dir": str(data)})
    assert isinstance(found, Resolved)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "node-2.join"
    made.write_bytes(codec.encode(JOINING))
    return made


def test_it_names_the_node_and_its_way_into_nats(tmp_path: Path, file: Path) -> None:
    config = configure(resolved(("join", str(file)), data=tmp_path))
    door = config.nats
    assert (config.node, door.url, door.user) == ("node-2", JOINING.url, JOINING.user)
    assert door.password() == "a secret"
    assert door.password_file is not None
    assert stat.S_IMODE(door.password_file.stat().st_mode) == 0o600
    assert door.ca is not None
    assert door.ca.read_text() == "a certificate"
    assert door.inbox == "_INBOX.agent.node-2"


def test_a_listener_that_nobody_named_is_on_the_address_towards_nats(
    tmp_path: Path, file: Path
) -> None:
    config = configure(resolved(("join", str(file)), data=tmp_path))
    assert config.listen == config.admin_address
    assert config.listen.endswith(":7402")
    assert config.address.startswith("127.")
    named = (("join", str(file)), ("listen", "127.0.0.9:17"))
    config = configure(resolved(*named, data=tmp_path))
    assert (config.listen, config.address) == ("127.0.0.9:17", "127.0.0.9")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("{}", "is no join file"),
        ("nats: hello", "is no join file"),
        ('{"flotilla_join": 2, "more": true}', "is of version 2, and 1 is known here"),
        ('{"flotilla_join": 1}', "is no join file"),
    ],
)
def test_a_wrong_file_is_told_with_its_name(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "some.join"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=said) as raised:
        joining.read(file)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("flag", ["node", "nats-user", "nats-ca"])
def test_what_the_file_says_is_not_said_twice(tmp_path: Path, file: Path, flag: str) -> None:
    with pytest.raises(ValueError, match="set one of the two"):
        configure(resolved(("join", str(file)), (flag, "x"), data=tmp_path))


def test_no_password_is_in_what_a_log_would_show() -> None:
    assert "a secret" not in repr(JOINING)


@pytest.mark.parametrize(("mode", "told"), [(0o644, ["0644"]), (0o640, ["0640"]), (0o600, [])])
def test_a_file_that_others_may_read_is_said(file: Path, mode: int, told: list[str]) -> None:
    file.chmod(mode)
    with structlog.testing.capture_logs() as said:
        assert joining.read(file) == JOINING
    assert [line["mode"] for line in said if line["event"] == "join.readable_by_others"] == told
