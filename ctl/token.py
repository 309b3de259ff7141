"""The token that opens the management API: a file with nothing else in it. Never a flag."""

from pathlib import Path

from ctl.failure import Exit, Failure


def made_by_control(data: Path) -> Path:
    """Where `control` writes its first token, under the data folder of this machine."""
    return data / "control" / "admin.token"


def read_token(file: Path) -> str | None:
    """None where there is no such file: the server says whether it wants one."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            Exit.UNREACHABLE, "no_token", f"cannot read the token file {file}", why=str(error)
        ) from error
