"""What clients of the OpenAI API expect: the routes, and errors in their shape. Pure.

Adding a route that is forwarded is one more row of `ROUTES`.
"""

from typing import Literal

from msgspec import Struct

from schemas import codec
from schemas.ids import ModelName

RETRY_UNKNOWN_SECONDS = 5
"""`Retry-After` while nothing is known about how soon there will be room."""


class Forwarded(Struct, frozen=True, gc=False):
    """A route whose requests go to a replica of the model that the body names."""

    path: str
    ends_with_done: bool = False
    """Its event streams end with `data: [DONE]`; one that ends without was cut."""


ROUTES: dict[str, Forwarded] = {
    route.path: route
    for route in (
        Forwarded("/v1/chat/completions", ends_with_done=True),
        Forwarded("/v1/completions", ends_with_done=True),
        Forwarded("/v1/embeddings"),
    )
}
MODELS_PATH = "/v1/models"
SERVER = "flotilla"
"""What every answer calls itself."""
_SHOWN_CHARACTERS = 200
"""Of what a client sent, in what it is told."""

ErrorType = Literal["invalid_request_error", "server_error", "rate_limit_error"]


class ApiError(Struct, frozen=True, gc=False, kw_only=True):
    """An answer that the router gives itself. `code` is stable; `message` names no host or replica."""

    status: int
    code: str
    message: str
    type: ErrorType = "invalid_request_error"
    param: str | None = None
    retry_after: int | None = None
    """Seconds."""

    def body(self) -> bytes:
        """The JSON that official clients turn into an exception."""
        return codec.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )

    def event(self) -> bytes:
        """The same as the last event of a stream that cannot be finished."""
        return b"data: " + self.body() + b"\n\n"


def unknown_path(method: str, path: str) -> ApiError:
    """Management paths get this too: on this listener they are not there."""
    return ApiError(status=404, code="not_found", message=f"Unknown request URL: {method} {path}")


def wrong_method(method: str, path: str) -> ApiError:
    """The path is there, the method is not."""
    return ApiError(
        status=405, code="method_not_allowed", message=f"{method} is not allowed on {path}"
    )


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The body cannot be used; never the replica's fault."""
    return ApiError(status=400, code="invalid_request", message=message, param=param)


def too_slow(limit: float) -> ApiError:
    """`limit` in seconds."""
    return ApiError(
        status=408,
        code="request_timeout",
        message=f"Nothing more of the request body has come for {limit:g} s.",
    )


def too_large(limit: int) -> ApiError:
    """`limit` in bytes."""
    return ApiError(
        status=413,
        code="request_too_large",
        message=f"The request body is larger than the {limit} bytes this server accepts.",
    )


def model_not_found(name: str) -> ApiError:
    """No catalog has it."""
    return ApiError(
        status=404,
        code="model_not_found",
        message=f"The model `{name[:_SHOWN_CHARACTERS]}` does not exist.",
        param="model",
    )


def starting() -> ApiError:
    """Nobody has told the router yet which models there are."""
    return ApiError(
        status=503,
        code="starting",
        message="This server is starting and does not know its models yet.",
        type="server_error",
        retry_after=1,
    )


def model_stopped(name: ModelName) -> ApiError:
    """In the catalog with no replicas."""
    return ApiError(
        status=503,
        code="model_stopped",
        message=f"The model `{name}` is stopped.",
        type="server_error",
        param="model",
    )


def model_starting(name: ModelName) -> ApiError:
    """In the catalog, nothing ready."""
    return ApiError(
        status=503,
        code="model_starting",
        message=f"The model `{name}` has no ready replica yet.",
        type="server_error",
        param="model",
        retry_after=RETRY_UNKNOWN_SECONDS,
    )


def upstream_unreachable(name: ModelName) -> ApiError:
    """Replicas are known, none took the connection."""
    return ApiError(
        status=503,
        code="upstream_unreachable",
        message=f"No replica of the model `{name}` can be reached.",
        type="server_error",
        retry_after=RETRY_UNKNOWN_SECONDS,
    )


def upstream_failed(name: ModelName) -> ApiError:
    """A replica took the request and gave no proper answer."""
    return ApiError(
        status=502,
        code="upstream_failed",
        message=f"The replica of the model `{name}` failed while answering.",
        type="server_error",
    )


def upstream_refused(name: ModelName, status: int) -> ApiError:
    """A replica answered with this status and a body that is too long to be kept."""
    return ApiError(
        status=status,
        code="upstream_refused",
        message=f"The replica of the model `{name}` answered with status {status}.",
        type="rate_limit_error" if status == 429 else "server_error",
        retry_after=RETRY_UNKNOWN_SECONDS if status in (429, 503) else None,
    )


def upstream_timeout(name: ModelName) -> ApiError:
    """A replica took the request and was silent for too long."""
    return ApiError(
        status=504,
        code="upstream_timeout",
        message=f"The replica of the model `{name}` did not answer in time.",
        type="server_error",
    )


def shutting_down() -> ApiError:
    """The router ends while the request is under way."""
    return ApiError(
        status=503,
        code="shutting_down",
        message="This server is shutting down.",
        type="server_error",
        retry_after=RETRY_UNKNOWN_SECONDS,
    )


def internal() -> ApiError:
    """A mistake of ours. Says nothing about it; the log does."""
    return ApiError(
        status=500, code="internal_error", message="Internal error.", type="server_error"
    )


class ModelObject(Struct, frozen=True, kw_only=True):
    """One entry of the model list."""

    id: ModelName
    object: Literal["model"] = "model"
    created: int = 0
    """Seconds since 1970; the catalog knows no such time, clients want a number."""
    owned_by: str = "flotilla"


class ModelPage(Struct, frozen=True, kw_only=True):
    """The model list."""

    object: Literal["list"] = "list"
    data: tuple[ModelObject, ...]
