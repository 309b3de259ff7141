"""`flotilla version`."""

from importlib.metadata import version as installed

import click

from ctl.render import result


@click.command()
def version() -> None:
    """Print the version of this installation."""
    result(f"flotilla {installed('flotilla')}")
