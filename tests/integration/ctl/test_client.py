"""The client against a scripted server on a real socket: what each kind of answer becomes."""

import socket

import msgspec
import pytest

from ctl.client import Client
from ctl.failure import Exit, Failure
from schemas import codec
from schemas.api import CHANGE_SECONDS, ROUTES, ApplyCatalog, Explanation, NodeList, Route
from schemas.frames import Accepted, Fault, Refusal
from schemas.history import Why
from schemas.ids import EventId, ModelName
from services.control import requests
from tests.support.filling import filled
from tests.support.ports import free_port
from tests.support.scripted_http import answering

NODES = codec.encode(NodeList(as_of_seq=7, items=()))
APPLY = ApplyCatalog(source="models: {}")


def refusal(code: str) -> bytes:
    return codec.encode(
        Refusal(
            as_of_seq=7,
            code=code,
            message="no",
            why="because",
            next="flotilla status",
            faults=(Fault(file="a.yaml", line=1, column=2, message="bad"),),
        )
    )


def failure_of(client: Client, *, write: bool = False) -> Failure:
    try:
        if write:
            client.ask("apply", Accepted, request=APPLY)
        else:
            client.ask("nodes", NodeList)
    except Failure as failure:
        return failure
    raise AssertionError("it was answered")


def test_an_answer_is_decoded_and_kept_as_it_came() -> None:  # spec: O3
    with answering(200, NODES) as server:
        answer = Client(server.url, "secret").ask("nodes", NodeList)
    assert answer.frame == NodeList(as_of_seq=7, items=())
    assert answer.body == NODES
    assert server.asked == [("GET", "/api/v1/nodes", "Bearer secret", b"")]


def test_a_name_in_a_path_cannot_leave_its_segment() -> None:
    with answering(404, refusal("not_found")) as server, pytest.raises(Failure):
        Client(server.url, None).ask("explain", Explanation, path={"model": "a/../b c?d"})
    assert server.asked[0][1] == "/api/v1/placement/a%2F..%2Fb%20c%3Fd"


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [
        (400, Exit.USAGE),
        (403, Exit.UNREACHABLE),
        (404, Exit.NOT_FOUND),
        (409, Exit.REFUSED),
        (422, Exit.USAGE),
        (503, Exit.UNREACHABLE),
        (504, Exit.OUTCOME_UNKNOWN),
    ],
)
def test_a_refusal_keeps_its_words_and_gives_its_exit_code(status: int, exit_code: Exit) -> None:
    with answering(status, refusal("some_code")) as server:
        failure = failure_of(Client(server.url, None), write=True)
    assert failure.exit_code == exit_code
    assert failure.lines()[0] == "a.yaml:1:2: error: bad"
    assert failure.lines()[1] == "error: no [some_code]"
    assert failure.why == "because"
    assert failure.steps == ("flotilla status",)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_who_is_not_let_in_is_told_where_the_token_was_looked_for(token: str | None) -> None:
    with answering(401, refusal("unauthorized")) as server:
        failure = failure_of(Client(server.url, token, "/etc/flotilla.token"))
    assert (failure.exit_code, failure.code) == (Exit.UNREACHABLE, "unauthorized")
    assert "/etc/flotilla.token" in failure.why
    assert failure.why.startswith("there is no") == (token is None)


def test_a_leader_that_knows_other_tokens_is_told_apart_from_a_wrong_token() -> None:  # spec: L7
    with (
        answering(401, refusal("unauthorized")) as leader,
        answering(307, b"", {"Location": f"{leader.url}/"}) as standby,
    ):
        failure = failure_of(Client(standby.url, "secret"), write=True)
    assert (failure.exit_code, failure.code) == (Exit.UNREACHABLE, "unauthorized")
    assert f"{standby.url} says that {leader.url} leads, and knows other tokens" in failure.why


def test_a_standby_sends_a_write_on_to_the_leader_with_the_token() -> None:
    done = codec.encode(Accepted(as_of_seq=9, command=EventId("c-1"), revision=2))
    with (
        answering(200, done) as leader,
        answering(307, b"", {"Location": f"{leader.url}/api/v1/catalog"}) as standby,
    ):
        answer = Client(standby.url, "secret").ask("apply", Accepted, request=APPLY)
    assert answer.frame.revision == 2
    method, path, token, body = leader.asked[0]
    assert (method, path, token) == ("POST", "/api/v1/catalog", "Bearer secret")
    assert codec.decode(body, ApplyCatalog) == APPLY


def test_what_fails_after_a_redirect_is_told_of_the_leader_not_of_the_standby() -> None:  # spec: L7
    gone = f"http://127.0.0.1:{free_port()}"
    with answering(307, b"", {"Location": f"{gone}/api/v1/catalog"}) as standby:
        failure = failure_of(Client(standby.url, None), write=True)
    assert (failure.exit_code, failure.code) == (Exit.UNREACHABLE, "unreachable")
    assert gone in failure.message
    assert f"{standby.url} says that {gone} leads" in failure.why
    assert failure.steps == (f"flotilla status --server {standby.url}",)


@pytest.mark.parametrize(("status", "body"), [(401, b""), (500, b"oops"), (200, b"<html>")])
def test_a_leader_that_says_no_is_named(status: int, body: bytes) -> None:  # spec: L7
    with (
        answering(status, body) as leader,
        answering(307, b"", {"Location": f"{leader.url}/api/v1/catalog"}) as standby,
    ):
        failure = failure_of(Client(standby.url, "secret"), write=True)
    assert leader.url in failure.message
    assert standby.url not in failure.message


def test_two_standbys_that_name_each_other_do_not_keep_a_verb_for_ever() -> None:
    with answering(307, b"", {"Location": "http://127.0.0.1:1/"}) as standby:
        standby.answer = 307, b"", {"Location": standby.url}
        failure = failure_of(Client(standby.url, None), write=True)
    assert len(standby.asked) == 2
    assert failure.exit_code == Exit.UNREACHABLE


def test_nobody_listening_is_unreachable_and_says_what_to_start() -> None:
    failure = failure_of(Client(f"http://127.0.0.1:{free_port()}", None), write=True)
    assert (failure.exit_code, failure.code) == (Exit.UNREACHABLE, "unreachable")
    assert "connection refused" in failure.message
    assert "flotilla up" in failure.steps


def test_a_write_without_an_answer_has_an_unknown_outcome_and_a_read_has_none() -> None:
    with answering(0) as server:
        assert failure_of(Client(server.url, None)).exit_code == Exit.UNREACHABLE
        failure = failure_of(Client(server.url, None), write=True)
    assert (failure.exit_code, failure.code) == (Exit.OUTCOME_UNKNOWN, "outcome_unknown")
    assert "may or may not" in failure.message
    assert failure.steps == (f"flotilla events --for command/{server.marks[1]}",)
    assert server.marks[0] is None


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method != "GET"])
def test_every_change_is_found_by_its_mark_whatever_became_of_its_answer(route: Route) -> None:
    """Sent on to another leader it is the same one."""
    assert route.request is not None
    request = msgspec.convert(filled(route.request, "x"), route.request)
    for status, body in ((0, b""), (500, b"oops"), (502, b"<html>"), (200, b"<html>")):
        with (
            answering(status, body) as leader,
            answering(307, b"", {"Location": f"{leader.url}/"}) as standby,
            pytest.raises(Failure) as raised,
        ):
            Client(standby.url, None).ask(route.name, Accepted, request=request)
        failure = raised.value
        assert failure.exit_code == Exit.OUTCOME_UNKNOWN
        assert standby.marks == leader.marks
        assert f"flotilla events --for command/{leader.marks[0]}" in failure.steps
        assert ("flotilla journal recover" in failure.steps) == (route.name == "recover")


def test_a_change_is_waited_for_longer_than_control_takes_to_say_what_became_of_it() -> None:
    assert requests.ANSWER_SECONDS + requests.PREPARE_SECONDS < CHANGE_SECONDS


@pytest.mark.parametrize(
    "path", [{"kind": "node", "name": "n" * 257}, {"kind": "node", "name": "\udcff"}]
)
def test_what_nobody_would_take_is_not_sent(path: dict[str, str]) -> None:
    with answering(200, b"") as server, pytest.raises(Failure) as raised:
        Client(server.url, None).ask("why", Why, path=path)
    assert raised.value.exit_code == Exit.USAGE
    assert server.asked == []


def test_a_change_that_control_would_not_read_is_not_sent() -> None:
    with answering(200, b"") as server:
        for wrong in (
            ApplyCatalog(source="", reason="r" * 2001),
            ApplyCatalog(source="", file="f" * 1001),
            ApplyCatalog(source="", prune=(ModelName("m"),) * 10_001),
            ApplyCatalog(source="", file="\udcff"),
        ):
            with pytest.raises(Failure) as raised:
                Client(server.url, None).ask("apply", Accepted, request=wrong)
            assert raised.value.exit_code == Exit.USAGE
    assert server.asked == []


def test_a_broken_server_leaves_a_write_unknown() -> None:
    with answering(500, b"oops") as server:
        assert failure_of(Client(server.url, None)).exit_code == Exit.UNREACHABLE
        assert failure_of(Client(server.url, None), write=True).exit_code == Exit.OUTCOME_UNKNOWN


def test_an_answer_of_something_else_is_not_taken_for_ours() -> None:
    with answering(200, b"<html>hello</html>") as server:
        failure = failure_of(Client(server.url, None))
    assert (failure.exit_code, failure.code) == (Exit.UNREACHABLE, "not_understood")


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctl.client.ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        failure = failure_of(Client(f"http://127.0.0.1:{silent.getsockname()[1]}", None))
    assert failure.exit_code == Exit.UNREACHABLE
    assert "nothing within 0.2 s" in failure.message


def test_a_server_address_that_is_none_is_a_usage_error() -> None:
    assert failure_of(Client("localhost:7400", None)).exit_code == Exit.USAGE
