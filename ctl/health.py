"""`flotilla healthcheck`: for containers and service managers, which know an exit code only."""

import http.client
from urllib.parse import urlsplit

import click

from ctl.failure import Exit, Failure
from ctl.render import result
from ctl.settings import settings
from services.fleet.settings import Program

ANSWER_SECONDS = 3.0
LISTENERS: dict[Program, str] = {
    "control": "control.listen",
    "router": "router.admin-listen",
    "agent": "agent.listen",
}


@click.command()
@click.argument("what")
def healthcheck(what: str) -> None:
    """Ask WHAT, a program (control, router, agent) or a URL, whether it can do its work.

    A program is asked where its settings say that it listens, so run this with its environment.
    """
    url = _url(what)
    status, text = _get(url)
    if status != http.client.OK:
        raise Failure(Exit.NO, "not_ready", f"{url} answers {status}", why=text)
    result(f"{what}: {text or 'ok'}")


def _url(what: str) -> str:
    if what.startswith("http://"):
        return what
    for program, name in LISTENERS.items():
        if what == program:
            return f"http://{settings(program).address(name).text}/readyz"
    known = ", ".join(LISTENERS)
    raise Failure(Exit.USAGE, "usage", f"`{what}` is neither one of {known} nor an http:// URL")


def _get(url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=ANSWER_SECONDS
    )
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        return answer.status, answer.read(200).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Failure(Exit.UNREACHABLE, "unreachable", f"no answer from {url}: {error}") from error
    finally:
        connection.close()
