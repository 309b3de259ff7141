"""What nats-server is run with."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from services.log import server
from services.log.permissions import NAMED, ROLES, Role, User, user

DEPLOY = Path(__file__).parents[3] / "deploy"
USERS_FILE = DEPLOY / "nats-server-users.conf"
TLS = Path(__file__).parents[2] / "data" / "tls"


def test_finds_the_binary_of_the_wheel() -> None:
    assert os.access(server.binary(), os.X_OK)


def test_the_server_accepts_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(server.config(tmp_path / 'odd "dir" \\ name', 4222, monitor_port=8222))
    command = [str(server.binary()), "-c", str(file), "-t"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_writes_are_synced_and_nothing_listens_beyond_loopback(tmp_path: Path) -> None:
    # spec: L6
    text = server.config(tmp_path, 4222)
    assert "sync_interval: always" in text
    assert 'listen: "127.0.0.1:4222"' in text
    assert "http" not in text


HEADER = """\
# One nats-server for several machines: TLS, and a user for every program with the rights of its role.
#
# Each node, router and person has an entry of its own: copy one, or have it made by
# `flotilla join entry agent.NODE`. passwords.conf lies beside this file, readable by the server alone, and
# has a line a user, a password or its bcrypt hash in quotes: AGENT_NODE_1_PASSWORD: "..."; the program
# has the password itself in the file that its nats.password-file names.
# SIGHUP makes the server read both anew; nobody else's connection is touched.
# A test holds this file equal to what the programs themselves generate.

include "passwords.conf"
"""


def users_file() -> str:
    """What USERS_FILE holds."""
    names = ("control", "admin", "operator.cli", "agent.node-1", "router.router-1")
    found = [user(name) for name in names]
    passwords = {each: server.variable(each) for each in found if each is not None}
    folder = Path("/etc/flotilla")
    return (
        HEADER
        + server.config(
            Path("/var/lib/flotilla/nats"),
            4222,
            host="0.0.0.0",
            monitor_port=8222,
            tls=server.Tls(folder / "nats.pem", folder / "nats.key"),
        )
        + server.users(passwords, "$SYS_PASSWORD")
    )


def test_the_documented_configuration_is_the_generated_one() -> None:
    # spec: S1
    assert USERS_FILE.read_text() == users_file(), "`make nats-users` writes it anew"


def test_the_server_accepts_the_documented_configuration(tmp_path: Path) -> None:
    text = USERS_FILE.read_text()
    file = tmp_path / "nats.conf"
    file.write_text(text.replace("/etc/flotilla/nats", str(TLS / "server")))
    names = re.findall(r"password: [$]([A-Z_0-9]+)", text)
    assert len(names) == 6
    lines = [f'{name}: "$2a$11$not-really-a-hash"\n' for name in names]
    (tmp_path / "passwords.conf").write_text("".join(lines))
    checked = subprocess.run(
        [str(server.binary()), "-c", str(file), "-t"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


CLUSTER_HEADER = """\
# One of three nats-servers that keep three copies of the log: nats-1, nats-2, nats-3. The other two differ in
# server_name alone. users.conf lies beside this file: `authorization` and what follows it, and the include of
# passwords.conf, of nats-server-users.conf. The same on all three.
# The certificate is one for clients and for the other servers; who has none of this ca joins nothing.
# A test holds this file equal to what the programs themselves generate. docs/nats-cluster.md has the rest.

"""


def cluster_file() -> str:
    """deploy/nats-server-cluster.conf."""
    cert, key, ca = (Path("/etc/flotilla") / f"nats.{end}" for end in ("pem", "key", "ca"))
    routes = [f"nats-{number}:6222" for number in (1, 2, 3)]
    cluster = server.Cluster("flotilla", "0.0.0.0:6222", routes, server.Tls(cert, key, ca))
    return CLUSTER_HEADER + server.config(
        Path("/var/lib/flotilla/nats"),
        4222,
        host="0.0.0.0",
        name="nats-1",
        monitor_port=8222,
        cluster=cluster,
        tls=server.Tls(cert, key),
        include="users.conf",
    )


def test_the_documented_configuration_of_a_cluster_is_the_generated_one() -> None:
    assert (DEPLOY / "nats-server-cluster.conf").read_text() == cluster_file()


def test_the_server_accepts_the_configuration_of_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    text = (DEPLOY / "nats-server-cluster.conf").read_text()
    text = text.replace("/etc/flotilla/nats.ca", str(TLS / "test-ca.pem"))
    file.write_text(text.replace("/etc/flotilla/nats", str(TLS / "server")))
    (tmp_path / "users.conf").write_text("authorization { user: u, password: p }\n")
    command = [str(server.binary()), "-c", str(file), "-t"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_monitoring_knows_no_users_and_stays_on_loopback(tmp_path: Path) -> None:
    text = server.config(tmp_path, 4222, host="192.0.2.1", monitor_port=8222)
    assert 'listen: "192.0.2.1:4222"' in text
    assert 'http: "127.0.0.1:8222"' in text


@pytest.mark.parametrize("role", ROLES)
def test_a_user_is_known_again_by_its_name(role: Role) -> None:
    made = User(role, "n-1" if role in NAMED else "")
    assert user(made.text) == made


@pytest.mark.parametrize(
    "text", ["", "agent", "agent.", "agent.A", "agent.a.b", "control.x", "sys"]
)
def test_what_is_no_user_of_ours_is_none(text: str) -> None:
    assert user(text) is None


@pytest.mark.parametrize("role", ROLES)
def test_answers_to_one_user_are_heard_by_nobody_else(role: Role) -> None:
    """But by an administrator, who may everything."""
    name = "n-1" if role in NAMED else ""
    heard = [subject for subject in User(role, name).rights.subscribe if "_INBOX" in subject]
    assert heard == ([] if role == "admin" else [f"_INBOX.{User(role, name).text}.>"])


if __name__ == "__main__":
    USERS_FILE.write_text(users_file())
    (DEPLOY / "nats-server-cluster.conf").write_text(cluster_file())
