"""Which headers pass, in both directions. Pure.

Nothing that speaks about one connection passes, nor what belongs to the client alone (its key, its
cookies), nor what only a trusted proxy may say; and nothing of the engine that names it or its host.
"""

from collections.abc import Iterable

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_NOT_UPSTREAM = HOP_BY_HOP | frozenset(
    (
        b"host",
        b"content-length",
        b"content-encoding",  # The body has been decoded.
        b"accept-encoding",  # Said anew: identity.
        b"expect",  # Answered by the router.
        b"authorization",
        b"api-key",
        b"x-api-key",
        b"cookie",
        b"forwarded",
        b"via",
        b"x-real-ip",
    )
)
_NOT_TO_CLIENT = HOP_BY_HOP | frozenset(
    (b"content-length", b"server", b"date", b"set-cookie", b"location", b"via", b"alt-svc")
)
_PREFIXES_NOT_UPSTREAM = (b"x-forwarded-", b"x-flotilla-")
_PREFIXES_NOT_TO_CLIENT = (b"x-flotilla-", b"access-control-")


def to_upstream(headers: Iterable[Header]) -> list[Header]:
    """Of a client's request. Names in any case; values as they came."""
    return _pass(headers, _NOT_UPSTREAM, _PREFIXES_NOT_UPSTREAM)


def to_client(headers: Iterable[Header]) -> list[Header]:
    """Of an engine's answer."""
    return _pass(headers, _NOT_TO_CLIENT, _PREFIXES_NOT_TO_CLIENT)


def _pass(
    headers: Iterable[Header], stopped: frozenset[bytes], prefixes: tuple[bytes, ...]
) -> list[Header]:
    listed = [(name.lower(), name, value) for name, value in headers]
    named = _named_by_connection(listed)
    return [
        (name, value)
        for lower, name, value in listed
        if lower not in stopped and lower not in named and not lower.startswith(prefixes)
    ]


def _named_by_connection(listed: list[tuple[bytes, bytes, bytes]]) -> set[bytes]:
    return {
        token.strip().lower()
        for lower, _, value in listed
        if lower == b"connection"
        for token in value.split(b",")
    }


def first(headers: Iterable[Header], name: bytes) -> bytes | None:
    """The first value of a header; `name` in lower case."""
    return next((value for key, value in headers if key.lower() == name), None)
