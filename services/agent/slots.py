"""Which of the node's shard documents belongs to which replica. Pure.

Subjects are bounded: a slot is used again, the lowest first, once its replica is gone from the log.
"""

from schemas.ids import ReplicaId


class Slots:
    """Slots in use, by replica."""

    def __init__(self) -> None:
        self._of: dict[ReplicaId, int] = {}

    def take(self, replica: ReplicaId) -> int:
        """The one it has, else the lowest free one."""
        if replica not in self._of:
            used = set(self._of.values())
            self._of[replica] = next(n for n in range(len(used) + 1) if n not in used)
        return self._of[replica]

    def keep(self, replica: ReplicaId, slot: int) -> bool:
        """It has had this one before. False: another has it, and nothing is changed."""
        if any(held == slot and other != replica for other, held in self._of.items()):
            return False
        self._of[replica] = slot
        return True

    def holds(self, replica: ReplicaId, slot: int) -> bool:
        """It may write there."""
        return self._of.get(replica) == slot

    def used(self) -> set[str]:
        """The slots that some replica has, as they stand in a subject."""
        return set(map(str, self._of.values()))

    def free(self, replica: ReplicaId) -> None:
        """It may be given to another."""
        self._of.pop(replica, None)
