"""The last step of `flotilla up`: one token from the model through the router, as a client would ask."""

import http.client
import json
import time

ANSWER_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
NOT_YET = {404, 429, 502, 503, 504}
"""The router does not have the model or its replica yet."""


class FirstAnswer:
    """Asked for again and again, but not for ever: what is ready says so in `status` too."""

    def __init__(self, port: int, model: str) -> None:
        self._port = port
        self._model = model
        self._until = time.monotonic() + PATIENCE_SECONDS

    def came(self) -> bool | None:
        """True: it came; False: waited long enough; None: not yet."""
        if self._ask():
            return True
        return False if time.monotonic() > self._until else None

    def _ask(self) -> bool:
        message = {"role": "user", "content": "Hi"}
        body = json.dumps({"model": self._model, "max_tokens": 1, "messages": [message]})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request(
                "POST", "/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            return connection.getresponse().status not in NOT_YET
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
