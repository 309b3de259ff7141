"""`flotilla replicas`: running copies of models, their shards, and the last error of each."""

import click

from ctl.at import ask, at_option
from ctl.client import Answer
from ctl.listing import find, print_list, print_one
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, Column, duration, facts, joined
from schemas.api import ReplicaList, ReplicaRow, ShardRow

COLUMNS = (
    Column[ReplicaRow]("REPLICA", lambda row: row.replica),
    Column[ReplicaRow]("MODEL", lambda row: row.model),
    Column[ReplicaRow]("STATE", lambda row: _state(row)),
    Column[ReplicaRow]("NODE", lambda row: joined(shard.node for shard in row.shards)),
    Column[ReplicaRow]("ROUTED", lambda row: "yes" if row.routed else "no"),
    Column[ReplicaRow]("IDLE", lambda row: _idle(row), right=True),
    Column[ReplicaRow]("RESTARTS", lambda row: str(_restarts(row)), right=True),
    Column[ReplicaRow]("WHY", lambda row: row.reason, prose=True),
    Column[ReplicaRow]("ADDRESS", lambda row: row.address or UNKNOWN, wide=True),
    Column[ReplicaRow]("GPUS", lambda row: str(_cards(row)), wide=True, right=True),
    Column[ReplicaRow]("REV", lambda row: f"r{row.revision}", wide=True),
    Column[ReplicaRow]("GOAL", lambda row: row.goal, wide=True),
    Column[ReplicaRow]("SINCE", lambda row: row.since, wide=True),
)


@click.command("list", cls=Verb)
@at_option
@click.pass_obj
def list_all(operator: Operator, at: str | None) -> None:
    """All replicas."""
    answer = _ask(operator, at)
    print_list(operator, answer.body, answer.frame.items, COLUMNS, lambda row: row.replica)


@click.command(cls=Verb)
@click.argument("replica")
@at_option
@click.pass_obj
def show(operator: Operator, replica: str, at: str | None) -> None:
    """One replica: its shards, and the last error of each with the engine's own words."""
    row = find(_ask(operator, at).frame.items, replica, "replica", lambda row: row.replica)
    print_one(operator, row, _text(row))


def _ask(operator: Operator, at: str | None) -> Answer[ReplicaList]:
    return ask(operator, "replicas", ReplicaList, at)


def _text(row: ReplicaRow) -> list[str]:
    lines = facts(
        {
            "replica": row.replica,
            "model": row.model,
            "state": _state(row),
            "why": row.reason,
            "goal": f"{row.goal} since {row.since}",
            "catalog": f"r{row.revision}",
            "address": row.address,
            "routed": "yes" if row.routed else "no",
            "idle": _idle(row),
        }
    )
    for shard in row.shards:
        lines += ["", *_shard_text(shard)]
    return lines


def _shard_text(shard: ShardRow) -> list[str]:
    error = shard.error
    told = facts(
        {
            "shard": f"{shard.rank} on {shard.node}, port {shard.port}",
            "state": shard.phase,
            "loading": _progress(shard),
            "cards": ", ".join(shard.gpus),
            "engine": shard.engine_version,
            "failures": str(shard.failures) if shard.failures else "",
            "next try": shard.retry_at or "",
            "last error": f"{error.failure}: {error.message}" if error else "",
        }
    )
    if error is None or not error.log:
        return told
    return [*told, *(f"  | {line}" for line in error.log.splitlines())]


def _state(row: ReplicaRow) -> str:
    steps = [told for shard in row.shards if (told := _progress(shard))]
    return f"{row.phase} {steps[0]}" if steps and row.phase == "loading" else row.phase


def _progress(shard: ShardRow) -> str:
    if shard.progress is None or shard.phase != "loading":
        return ""
    percent = shard.progress.percent
    return shard.progress.step if percent is None else f"{percent:.0f}%"


def _idle(row: ReplicaRow) -> str:
    told = duration(row.idle_seconds)
    return f">{told}" if row.idle_at_least and row.idle_seconds >= 0 else told


def _restarts(row: ReplicaRow) -> int:
    return sum(shard.run for shard in row.shards)


def _cards(row: ReplicaRow) -> int:
    return sum(len(shard.gpus) for shard in row.shards)
