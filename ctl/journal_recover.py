"""`flotilla journal recover`: what is known of a damaged log, and the ways to go on."""

import click

from ctl.operator import Operator, Verb


@click.command(cls=Verb)
@click.pass_obj
def recover(operator: Operator) -> None:
    """Show what is known of a damaged log, and the ways to go on."""
    del operator
