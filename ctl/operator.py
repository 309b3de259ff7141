"""What every operator verb shares: where the management API is, the token, the form of the output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ctl.client import Client
from ctl.remembered import recall
from ctl.render import FORMATS, Format, encoded, result
from ctl.token import made_by_control, read_token

DEFAULT_DATA = ".flotilla"
DEFAULT_SERVER = "http://127.0.0.1:7400"


@dataclass(frozen=True)
class Operator:
    """Where a verb talks to, and how it prints."""

    server: str
    token_file: Path
    output: Format

    def client(self) -> Client:
        """No token file: no token is sent, and the server says whether it wants one."""
        return Client(self.server, read_token(self.token_file), str(self.token_file))

    @property
    def wide(self) -> bool:
        """Whether the columns that are left out by default are asked for."""
        return self.output == "wide"

    def prints_frame(self, body: bytes) -> bool:
        """Print an answer as it came, if that is the form asked for."""
        if self.output in {"json", "yaml", "jsonl"}:
            result(encoded(body, self.output))
            return True
        return False


class Verb(click.Command):
    """A command with the options of an operator verb; its function is given an `Operator` by
    `click.pass_obj`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options()

    def invoke(self, ctx: click.Context) -> Any:
        """Turn the shared options into the Operator."""
        server, token_file, data, output = (ctx.params.pop(option.name) for option in _options())
        ctx.obj = Operator(
            server=server or _here(data) or DEFAULT_SERVER,
            token_file=token_file or made_by_control(data),
            output=output,
        )
        return super().invoke(ctx)


def _here(data: Path) -> str | None:
    ports = recall(data)
    return None if ports is None else f"http://127.0.0.1:{ports.control}"


def _options() -> list[click.Option]:
    return [
        click.Option(
            ["--server"],
            envvar="FLOTILLA_SERVER",
            metavar="URL",
            help="Management API; by default the one that `flotilla up` started with --data.",
        ),
        click.Option(
            ["--token-file"],
            envvar="FLOTILLA_TOKEN_FILE",
            type=click.Path(path_type=Path),
            help="File with the token; by default the one that control made under --data.",
        ),
        click.Option(
            ["--data"],
            envvar="FLOTILLA_DATA_DIR",
            default=Path(DEFAULT_DATA),
            show_default=True,
            type=click.Path(path_type=Path),
            help="Data folder of a fleet on this machine.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            default="table",
            show_default=True,
            help="Form of the result.",
        ),
    ]
