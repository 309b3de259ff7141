"""What the agent writes to the log: the node's document and one a shard.

A shard's slot is used again once its replica is stopped, wanted no more, and `gone` in the log. While
no log is trusted nothing is written; what is true by then is written when one is.
"""

import asyncio

from schemas import subjects
from schemas.documents import Gone, ShardStatus
from schemas.ids import EventId, NodeId, ReplicaId
from services.agent.shard import Life, report
from services.log.write import Writer


class Reports:
    """The documents of one node."""

    def __init__(self, node: NodeId, incarnation: str) -> None:
        self._node = node
        self._incarnation = incarnation
        self._writer: Writer | None = None
        self._ended = asyncio.Event()
        self._told: dict[ReplicaId, ShardStatus] = {}
        """What should stand in the log."""

    def begin(self, writer: Writer) -> None:
        """A log is trusted. The caller puts the lives again."""
        self._writer, self._ended = writer, asyncio.Event()
        self._told.clear()

    def end(self) -> None:
        """It is no more."""
        self._writer = None
        self._ended.set()

    def put(self, life: Life) -> None:
        """Written if it says anything new."""
        document = report(life, self._node, self._incarnation)
        if self._writer is None or self._told.get(life.replica) == document:
            return
        self._told[life.replica] = document
        subject = subjects.node_shard(self._node, life.slot)
        self._writer.put(subject, f"shard.{life.phase}", document, life.order.cause)

    def doubt(self, life: Life, standing: ShardStatus | None) -> bool:
        """True: not what was told stands in its slot, and the next `put` writes again."""
        told = self._told.get(life.replica)
        if told is None or told == standing:
            return False
        del self._told[life.replica]
        return True

    async def settled(self) -> bool:
        """Everything put stands in the log. False: no log is trusted, or that one no more."""
        if self._writer is None:
            return False
        ended = self._ended
        waits = [asyncio.ensure_future(each) for each in (self._writer.idle(), ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return not ended.is_set()

    def bury(self, replica: ReplicaId, slot: int, cause: EventId | None = None) -> None:
        """The replica has nothing on this node any more."""
        self._told.pop(replica, None)
        if self._writer is not None:
            subject = subjects.node_shard(self._node, slot)
            self._writer.put(subject, "shard.gone", Gone(id=replica), cause)

    def clear(self, slot: str) -> None:
        """What stands there is of no replica of this node."""
        if self._writer is not None:
            subject = subjects.node_slot(self._node, slot)
            self._writer.put(subject, "shard.cleared", Gone(id=f"slot-{slot}"))
