"""What the router needs to know of a request body, and the one change it may make to it. Pure.

Bodies are forwarded byte for byte. Only where the client used an alias is the value of `model`
replaced, and nothing else moves.
"""

import re

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.ids import ModelName

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
_ESCAPES = re.compile(
    rb"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|\\u(?P<alone>[dD][c-fC-F][0-9a-fA-F]{2})|\\."
)


class Asked(Struct, frozen=True, gc=False):
    """What a body asks for."""

    model: str
    stream: bool


class Unusable(Struct, frozen=True, gc=False):
    """Why a body cannot be used; `param` names the field, if it is one."""

    message: str
    param: str | None = None


class _Fields(Struct, gc=False):
    model: str
    stream: object = None


_decoder = msgspec.json.Decoder(_Fields)


def read(body: bytes) -> Asked | Unusable:
    """The model and whether a stream is wanted. What is not JSON in UTF-8 goes no further."""
    try:
        if not body.isascii():
            body.decode()
        fields = _decoder.decode(body)
    except UnicodeDecodeError as error:
        return Unusable(f"The body is not UTF-8 (byte {error.start}).")
    except msgspec.ValidationError as error:
        return Unusable(f"The body must be a JSON object with a string `model`: {error}.", "model")
    except msgspec.DecodeError as error:
        return Unusable(_surrogate(body) or f"The body is not valid JSON: {error}.")
    except RecursionError:
        return Unusable("The body is nested too deeply.")
    return Asked(fields.model, fields.stream is True)


def _surrogate(body: bytes) -> str | None:
    """Names an escape that is half a character, as clients that cut strings send."""
    for found in _ESCAPES.finditer(body):
        if found["alone"] or (found["high"] and not found["low"]):
            return f"Unpaired surrogate escape at byte {found.start()}."
    return None


def with_model(body: bytes, name: ModelName) -> bytes:
    """The body with another value of its top-level `model`; `read` accepted it."""
    parts: list[bytes] = []
    done = 0
    for start, end in _model_values(body):
        parts += (body[done:start], codec.encode(name))
        done = end
    return b"".join((*parts, body[done:]))


def _model_values(body: bytes) -> list[tuple[int, int]]:
    """Where its values stand: more than one if the key is repeated."""
    found: list[tuple[int, int]] = []
    depth, at = 0, 0
    while (token := _STRING_OR_BRACKET.search(body, at)) is not None:
        at = token.end()
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(body, at)) is not None:
            value = _STRING_OR_BRACKET.match(body, colon.end())
            if value is not None and msgspec.json.decode(token[0]) == "model":
                found.append(value.span())
                at = value.end()
    return found
