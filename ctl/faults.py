"""Faults of catalogs and settings as compilers print them: `file:line:column: error: message`."""

from collections.abc import Iterable

from schemas.api import Fault


def fault_lines(faults: Iterable[Fault], severity: str = "error") -> list[str]:
    """One line a fault, and one more where there is a hint."""
    told: list[str] = []
    for fault in faults:
        told.append(f"{_place(fault)}{severity}: {fault.message}")
        if fault.hint:
            told.append(f"  hint: {fault.hint}")
    return told


def _place(fault: Fault) -> str:
    parts = [fault.file] if fault.file else []
    if fault.line:
        parts += [str(fault.line), str(fault.column)] if fault.column else [str(fault.line)]
    elif fault.path and not fault.file:
        parts.append(fault.path)
    return ":".join(parts) + ": " if parts else ""
