"""Faults of catalogs and settings as compilers print them: `file:line:column: error: message`."""

from collections.abc import Iterable

from schemas.frames import Fault
from services.fleet.faults import place


def fault_lines(faults: Iterable[Fault], severity: str = "error") -> list[str]:
    """One line a fault, and one more where there is a hint."""
    told: list[str] = []
    for fault in faults:
        where = place(fault)
        told.append(
            f"{where}: {severity}: {fault.message}" if where else f"{severity}: {fault.message}"
        )
        if fault.hint:
            told.append(f"  hint: {fault.hint}")
    return told
