"""What a client is told of a request that came to nothing."""

from msgspec import Struct

from schemas.ids import ModelName
from services.router import headers, openai
from services.router.answer import Answer, UpstreamError
from services.router.exchange import Exchange, Sink
from services.router.headers import Header
from services.router.openai import ApiError

WHOLE_BYTES = 64 << 10
"""An answer up to this size is sent once it is whole, so that it can fail over until then."""


class Answered(Struct, frozen=True, gc=False):
    """An engine's own refusal, kept in case no other engine does better."""

    status: int
    headers: list[Header]
    body: bytes


Failure = ApiError | Answered
"""What the client gets if this was the last attempt."""


async def refuse(sink: Sink, error: ApiError, identity: str = "", close: bool = False) -> None:
    """Answer with an error of the router's own."""
    content = error.body()
    named = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        named.append((b"retry-after", b"%d" % error.retry_after))
    if identity:
        named.append((b"x-request-id", identity.encode()))
    await sink.start(error.status, named, len(content), close)
    await sink.write(content)
    await sink.end()


def nothing_ready(exchange: Exchange) -> ApiError:
    """No endpoint to ask, or none left."""
    if exchange.model.replicas == 0:
        return openai.model_stopped(exchange.model.name)
    return openai.model_starting(exchange.model.name)


def failure_of(model: ModelName, error: UpstreamError) -> ApiError:
    """In the router's words: nothing of the engine, its host or the reason."""
    match error.kind:
        case "connect":
            return openai.upstream_unreachable(model)
        case "timeout":
            return openai.upstream_timeout(model)
        case "reset" | "malformed":
            return openai.upstream_failed(model)
        case "shutdown":
            return openai.shutting_down()


def worse(before: Failure | None, after: Failure) -> Failure:
    """What to tell of two failures: what an engine said itself, else the later one."""
    if isinstance(before, Answered) and not isinstance(after, Answered):
        return before
    return after


async def kept_of(exchange: Exchange, answer: Answer) -> Failure:
    """An engine's refusal; of one too long to be kept, only the status. Raises UpstreamError."""
    await answer.buffered(WHOLE_BYTES)
    if not answer.complete:
        return openai.upstream_refused(exchange.model.name, answer.status)
    return Answered(answer.status, exchange.passed(answer.headers), await answer.read())


def with_retry_after(kept: Answered) -> list[Header]:
    """The headers of an engine that is busy; when to come back is said in any case."""
    if headers.first(kept.headers, b"retry-after") is not None:
        return kept.headers
    return [*kept.headers, (b"retry-after", b"%d" % openai.RETRY_UNKNOWN_SECONDS)]
