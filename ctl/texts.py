"""Texts that a verb is given: one that control would not take is refused before anything is sent."""

from typing import Any

import click

from schemas.texts import LONGEST_NAME, LONGEST_REASON
from services.fleet.unseen import unseen


class Text(click.ParamType[str]):
    """Of a bounded length, and nothing in it that nobody sees."""

    name = "text"

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Fails with the limit."""
        text = str(value)
        if len(text) > self._longest:
            self.fail(f"{len(text):,} characters; at most {self._longest:,} are taken", param, ctx)
        if fault := unseen(text):
            self.fail(fault, param, ctx)
        return text


NAME = Text(LONGEST_NAME)

reason_option = click.option(
    "-m",
    "--reason",
    type=Text(LONGEST_REASON),
    default="",
    help="Kept in the log beside the change.",
)
