"""The last step of `flotilla up`: one token from the model through the router, as a client would ask."""

import http.client
import json

ANSWER_SECONDS = 30.0
NOT_YET = {404, 429, 502, 503, 504}
"""The router does not have the model or its replica yet."""


def answers(port: int, model: str) -> bool | None:
    """True once the router passes a request on to the model; None: not yet."""
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return None if connection.getresponse().status in NOT_YET else True
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
