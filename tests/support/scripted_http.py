"""An HTTP server on a real socket that gives every request the same answer and remembers it."""

from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread

from schemas.api import ASKED_HEADER


class Scripted(HTTPServer):
    """Answers everything with one status, body and headers; remembers what it was asked."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.answer = status, body, headers
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        self.marks: list[str | None] = []
        self.answers = Event()
        """Cleared: nobody is answered until it is set."""
        self.answers.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Scripted)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, token, body))
        self.server.marks.append(self.headers.get(ASKED_HEADER))
        self.server.answers.wait()
        status, answer, headers = self.server.answer
        if status == 0:
            return  # The connection closes without an answer.
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815  # http.server's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        pass


@contextmanager
def answering(
    status: int, body: bytes = b"", headers: dict[str, str] | None = None
) -> Generator[Scripted]:
    server = Scripted(status, body, headers or {})
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
