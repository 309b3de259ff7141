"""`flotilla journal mend`: documents that cannot be read, and how they are put right."""

import click

from ctl.operator import Operator, Verb


@click.command(cls=Verb)
@click.pass_obj
def mend(operator: Operator) -> None:
    """Show the documents that cannot be read."""
    del operator
