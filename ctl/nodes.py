"""`flotilla nodes`: machines, their cards, and why some are left out."""

import click

from ctl.at import ask, at_option
from ctl.client import Answer
from ctl.listing import find, print_list, print_one
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, Column, facts, joined, room, size, table
from schemas.api import CardRow, NodeList, NodeRow

COLUMNS = (
    Column[NodeRow]("NODE", lambda row: row.node),
    Column[NodeRow]("STATE", lambda row: row.condition),
    Column[NodeRow]("CLASS", lambda row: joined(sorted({card.gpu_class for card in row.cards}))),
    Column[NodeRow]("GPUS", lambda row: str(len(row.cards)), right=True),
    Column[NodeRow]("FREE", lambda row: _free(row), right=True),
    Column[NodeRow]("REPLICAS", lambda row: str(row.replicas), right=True),
    Column[NodeRow]("EXCLUDED", lambda row: _excluded(row), prose=True),
    Column[NodeRow]("CORES", lambda row: f"{row.cores:g}", wide=True, right=True),
    Column[NodeRow]("MEMORY", lambda row: size(row.memory_bytes), wide=True, right=True),
    Column[NodeRow]("FABRIC", lambda row: row.fabric or UNKNOWN, wide=True),
    Column[NodeRow]("ADDRESS", lambda row: row.address, wide=True),
    Column[NodeRow]("ENGINES", lambda row: _engines(row), wide=True),
    Column[NodeRow]("AGENT", lambda row: row.agent_version or UNKNOWN, wide=True),
)
CARDS = (
    Column[CardRow]("CARD", lambda card: card.uuid),
    Column[CardRow]("CLASS", lambda card: card.gpu_class),
    Column[CardRow]("HEALTH", lambda card: card.health),
    Column[CardRow]("REPLICA", lambda card: card.replica or UNKNOWN),
    Column[CardRow]("WHY", lambda card: card.reason, prose=True),
)


@click.command("list", cls=Verb)
@at_option
@click.pass_obj
def list_all(operator: Operator, at: str | None) -> None:
    """All nodes, and the cards that take no replica, with the reason."""
    answer = _ask(operator, at)
    print_list(operator, answer.body, answer.frame.items, COLUMNS, lambda row: row.node)


@click.command(cls=Verb)
@click.argument("node")
@at_option
@click.pass_obj
def show(operator: Operator, node: str, at: str | None) -> None:
    """One node and its cards."""
    row = find(_ask(operator, at).frame.items, node, "node", lambda row: row.node)
    print_one(operator, row, _text(row))


def _ask(operator: Operator, at: str | None) -> Answer[NodeList]:
    return ask(operator, "nodes", NodeList, at)


def _text(row: NodeRow) -> list[str]:
    told = facts(
        {
            "node": row.node,
            "state": f"{row.condition} since {row.condition_since}"
            if row.condition_since
            else row.condition,
            "address": row.address,
            "fabric": row.fabric,
            "cores": f"{row.cores:g}",
            "memory": size(row.memory_bytes),
            "engines": _engines(row),
            "replicas": str(row.replicas),
            "agent": row.agent_version,
            "acts on no assignment": row.damaged,
            "cards could not be read": row.cards_fault,
            "engines end with the agent": "" if row.engines_survive_agent else "yes",
        }
    )
    return [*told, "", *table(row.cards, CARDS, room=room())] if row.cards else told


def _free(row: NodeRow) -> str:
    if row.condition != "alive":
        return UNKNOWN
    usable = (card for card in row.cards if card.health in {"healthy", "degraded"})
    return str(sum(card.replica is None for card in usable))


def _excluded(row: NodeRow) -> str:
    bad = [card for card in row.cards if card.health in {"unhealthy", "unknown"}]
    whole = [("the node", row.damaged), ("all cards", row.cards_fault)]
    return "; ".join(
        [f"{what}: {fault}" for what, fault in whole if fault]
        + [f"{card.uuid} {card.health}: {card.reason or UNKNOWN}" for card in bad]
    )


def _engines(row: NodeRow) -> str:
    return joined(f"{name} {version or UNKNOWN}" for name, version in sorted(row.engines.items()))
