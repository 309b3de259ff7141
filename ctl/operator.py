"""What every operator verb shares: where the management API is, the token, the form of the output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ctl.client import Client
from ctl.doors import control_url, recall_doors
from ctl.remembered import recall
from ctl.render import FORMATS, Format, data
from ctl.settings import flags, option, settings
from ctl.token import made_by_control, read_token
from services.fleet.settings_table import settings_of

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
            data(body, self.output)
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
        given = {name: ctx.params.pop(name) for name in [str(each.name) for each in _options()]}
        found = settings("operator", flags("operator", given), given["config"])
        data = Path(found.text("data.dir"))

        def told(name: str) -> str | None:
            return found.text(name) if found.has(name) else None

        token_file = told("operator.token-file")
        ctx.obj = Operator(
            server=told("operator.server") or _here(data) or DEFAULT_SERVER,
            token_file=Path(token_file) if token_file else made_by_control(data),
            output=given["output"],
        )
        return super().invoke(ctx)


def _here(data: Path) -> str | None:
    ports = recall(data)
    return None if ports is None else control_url(recall_doors(data), ports)


def _options() -> list[click.Option]:
    return [
        *map(option, settings_of("operator")),
        click.Option(["--config"], type=click.Path(path_type=Path), help="Settings file."),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            default="table",
            show_default=True,
            help="Form of the result.",
        ),
    ]
