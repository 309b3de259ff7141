"""Who gives a command over HTTP. Shell."""

import re

from aiohttp import web

from schemas.api import ASKED_HEADER
from services.control.answering.tokens import Token
from services.control.commanding.commands import Actor
from services.log.event_ids import new_event_id

_MARK = re.compile("[0-9a-f]{16,64}")


def actor(request: web.Request, token: Token, now: float) -> Actor:
    """With the caller's own mark, by which it finds the command if the answer is lost. A mark is never an
    event's id: one that was used before would pass for a message that landed.
    """
    mark = request.headers.get(ASKED_HEADER, "")
    asked = mark if _MARK.fullmatch(mark) else ""
    return Actor(token.name, request.remote or "", new_event_id(now), asked)
