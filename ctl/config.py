"""`flotilla config show`: each setting, its value, and where it came from."""

from pathlib import Path

import click
import msgspec

from ctl.render import UNKNOWN, Column, Format, data, result, room, table
from ctl.settings import settings
from services.fleet.settings import Program, Shown
from services.fleet.settings import show as shown
from services.fleet.settings_table import PROGRAMS

COLUMNS = (
    Column[Shown]("SETTING", lambda row: row.name),
    Column[Shown]("VALUE", lambda row: row.value or UNKNOWN),
    Column[Shown]("FROM", lambda row: row.source),
    Column[Shown]("WHAT", lambda row: row.help, wide=True),
)


@click.command()
@click.argument("program", type=click.Choice(PROGRAMS), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="Settings file.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the result.",
)
def show(program: Program | None, config: Path | None, output: Format) -> None:
    """The settings of PROGRAM, or of all, as they would be if it started here and now."""
    programs = (program,) if program else PROGRAMS
    rows = [row for name in programs for row in shown(settings(name, config=config))]
    unique = list({row.name: row for row in rows}.values())  # Shared ones belong to each program.
    if output in {"json", "yaml"}:
        data(msgspec.json.encode({"items": unique}), output)
    else:
        result(*table(unique, COLUMNS, wide=output == "wide", room=room()))
