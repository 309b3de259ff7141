"""The name of a program that nobody named."""

import secrets
from pathlib import Path

from services.runtime.files import read_if_there, write_atomically

FILE = "name"


def own_name(folder: Path, program: str) -> str:
    """Made on first start, and kept in the program's own folder."""
    content = read_if_there(folder / FILE)
    if content:
        return content.decode().strip()
    name = f"{program}-{secrets.token_hex(3)}"
    write_atomically(folder / FILE, name.encode())
    return name
