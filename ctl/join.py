"""`flotilla join`: which machines may come in beside this one, and the file that each is given.

Works on the data folder of the `flotilla up` that they join; its NATS learns of it at once.
"""

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from ctl.admitted import admit, admitted, reload, revoke
from ctl.doors import Doors, agent_user, control_url, door, recall_doors
from ctl.failure import Exit, Failure
from ctl.knock import gets_in
from ctl.remembered import Ports, recall
from ctl.render import FORMATS, Column, Format, data, result, room, table, talk
from ctl.settings import argument, flags, option, settings
from ctl.up_names import node_here
from schemas import codec
from schemas.ids import NodeId, token
from schemas.joining import FORMAT, Joining
from services.fleet.settings_table import BY_NAME
from services.log import server
from services.log.permissions import User
from services.log.permissions import user as known

PRIVATE = 0o600
LET_IN_SECONDS = 5.0
_DATA = BY_NAME["data.dir"]


@dataclass(frozen=True)
class Here:
    """The `up` whose data folder is meant."""

    data: Path
    doors: Doors
    ports: Ports
    own: User
    """Of the agent that `up` runs itself."""


class Verb(click.Command):
    """With the options that name the data folder; its function gets `Here` by `click.pass_obj`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = click.Option(["--config"], type=click.Path(path_type=Path), help="Settings file.")
        self.params += [option(_DATA), config]

    def invoke(self, ctx: click.Context) -> Any:
        """Read where it is."""
        given = {argument(_DATA): ctx.params.pop(argument(_DATA))}
        config = ctx.params.pop("config")
        found = settings("operator", flags("operator", given), config)
        data, own = Path(found.text("data.dir")).resolve(), agent_user(node_here(config))
        ctx.obj = Here(data, recall_doors(data), recall(data) or Ports(), own)
        return super().invoke(ctx)


@click.command(cls=Verb)
@click.argument("node")
@click.option("--to", type=click.Path(path_type=Path), help="The file.  [default: NODE.join]")
@click.pass_obj
def create(here: Here, node: str, to: Path | None) -> None:
    """Let a machine in as NODE, and write the file that its agent is started with.

    Whoever holds the file may speak as that node: hand it over as you would a key.
    """
    user, file = _user(node), to or Path(f"{node}.join")
    _check(here, node, user, file)
    admit(here.data, user)
    found = door(here.data, here.doors, here.ports, user)
    joining = Joining(
        flotilla_join=FORMAT,
        node=node,
        url=found.url,
        user=found.user,
        password=found.password() or "",
        ca=_text(found.ca) if found.ca else "",
        control=control_url(here.doors, here.ports),
    )
    _write(file, codec.encode(joining))
    if reload(here.data):
        _until(lambda: gets_in(found), f"NATS does not let {user.text} in")
        result(f"{node} may come in. On that machine, with this file:")
    else:
        result(f"{node} may come in once `flotilla up` runs here. On that machine, with this file:")
    result(f"  flotilla agent --join {shlex.quote(file.name)}")
    talk(f"{file} holds a password: only its owner can read it")


@click.command("list", cls=Verb)
@click.option("-o", "--output", type=click.Choice(FORMATS), default="table", help="Form.")
@click.pass_obj
def list_all(here: Here, output: Format) -> None:
    """Nodes that may come in, this machine's own among them."""
    found = sorted(admitted(here.data).items())
    rows = [_row(user, since) for user, since in found if user.role == "agent"]
    if output in {"json", "jsonl", "yaml"}:
        data(msgspec.json.encode({"items": rows}), output)
    elif output == "name":
        result(*(row.node for row in rows))
    elif rows:
        result(*table(rows, COLUMNS, wide=output == "wide", room=room()))
    elif here.doors.is_open:
        talk("none: `flotilla join create NODE` lets one in")
    else:
        talk("none: this fleet listens on loopback only")


@click.command("revoke", cls=Verb)
@click.argument("node")
@click.pass_obj
def revoke_one(here: Here, node: str) -> None:
    """Let NODE in no more. Engines there run on: they are ended on that machine (docs/doors.md)."""
    user = _user(node)
    if user == here.own:
        raise Failure(
            Exit.REFUSED,
            "own_node",
            f"{node} is this machine's own node, which `flotilla up` lets in",
            why="its agent would be shut out, and the node unreachable until the next `flotilla up`",
            steps=["flotilla join list"],
        )
    if user not in admitted(here.data):
        raise Failure(
            Exit.NOT_FOUND, "not_joined", f"{node} has not joined", steps=["flotilla join list"]
        )
    revoke(here.data, user)
    now = reload(here.data)
    result(f"{node} is let in no more" + ("" if now else ", once `flotilla up` runs here"))
    talk("engines there run on until they are ended on that machine: docs/doors.md says how")


@click.command("entry")
@click.argument("user")
def entry(user: str) -> None:
    """Print USER (control, agent.NODE, router.NAME, operator.NAME, admin) as nats-server's
    configuration wants it.

    For a fleet with a NATS of its own: deploy/nats-server-users.conf is made of such entries, and says
    where their passwords stand.
    """
    found = known(user)
    if found is None:
        raise Failure(
            Exit.USAGE,
            "bad_name",
            f"`{user}` is no user",
            why="a role, and for agents, routers and operators a dot and a name of a-z, 0-9 and -",
            steps=["flotilla join entry agent.node-1"],
        )
    result(*server.entry(found, server.variable(found)).rstrip().split("\n"))


class Row(Struct, frozen=True):
    """One node that may come in."""

    node: str
    user: str
    since: str


COLUMNS = (
    Column[Row]("NODE", lambda row: row.node),
    Column[Row]("SINCE", lambda row: row.since),
    Column[Row]("USER", lambda row: row.user, wide=True),
)


def _row(user: User, since: float) -> Row:
    return Row(user.name, user.text, codec.rfc3339(since))


def _user(node: str) -> User:
    if token(node) != node:
        raise Failure(
            Exit.USAGE,
            "bad_name",
            f"`{node}` is no name of a node to join",
            why="1 to 48 of a-z, 0-9 and -",
            steps=[f"flotilla join create {token(node)}"],
        )
    return agent_user(NodeId(node))


def _check(here: Here, node: str, user: User, file: Path) -> None:
    if not here.doors.is_open:
        raise Failure(
            Exit.REFUSED,
            "loopback_only",
            "this fleet listens on loopback only: no other machine can reach it",
            steps=["flotilla up --listen ADDRESS"],
        )
    if user == here.own:
        raise Failure(
            Exit.REFUSED,
            "own_node",
            f"{node} is this machine's own node, which `flotilla up` lets in",
            why="each machine has a name of its own",
            steps=["flotilla join create OTHER"],
        )
    if user in admitted(here.data):
        raise Failure(
            Exit.REFUSED,
            "already_joined",
            f"{node} has joined already",
            why="its file was written when it did; another one needs another password",
            steps=[f"flotilla join revoke {node}"],
        )
    if file.exists():
        raise Failure(
            Exit.REFUSED,
            "file_there",
            f"{file} is there already",
            why="it may be a file that lets another machine in, so it is not written over",
            steps=[f"flotilla join create {node} --to OTHER"],
        )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, "no_ca", f"cannot read {file}", why=str(error)) from error


def _write(file: Path, content: bytes) -> None:
    """Never readable by others, not even for a moment."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except OSError as error:
        raise Failure(Exit.USAGE, "not_written", f"cannot write {file}", why=str(error)) from error
    with os.fdopen(descriptor, "wb") as written:
        written.write(content + b"\n")


def _until(good: Callable[[], bool], otherwise: str) -> None:
    ends = time.monotonic() + LET_IN_SECONDS
    while not good():
        if time.monotonic() > ends:
            raise Failure(
                Exit.NO,
                "not_let_in",
                f"{otherwise} yet",
                why="see logs/nats.log in the data folder",
            )
        time.sleep(0.05)
