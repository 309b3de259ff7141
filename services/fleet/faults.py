"""A fault of a catalog or setting as compilers print it: `file:line:column: error: message`."""

from schemas.frames import Fault


def place(fault: Fault) -> str:
    """As much as is known of file, line and column, else the path; empty: neither."""
    where = [str(part) for part in (fault.file, fault.line, fault.column) if part]
    return ":".join(where) if fault.file or fault.line else fault.path


def one_line(fault: Fault) -> str:
    """With its hint."""
    where, hint = place(fault), f"; {fault.hint}" if fault.hint else ""
    return f"{where}: error: {fault.message}{hint}" if where else f"error: {fault.message}{hint}"
