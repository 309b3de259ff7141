"""What an engine's log and exit code say, on logs of real failures."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import Progress
from services.agent.diagnose import LOG_BYTES, around, diagnose, lines, progress
from services.agent.engines.llamacpp import ADAPTER

FAILURES = Path(__file__).parents[2] / "data" / "engines" / "llama-b11434-failures.txt"


def real(case: str) -> list[str]:
    """The log of one failed start of llama-server."""
    for part in FAILURES.read_text().split("=== ")[1:]:
        head, _, body = part.partition("\n")
        if head.startswith(case + " "):
            return lines(body, ())
    raise AssertionError(case)


@pytest.mark.parametrize(
    ("case", "failure", "permanent", "says"),
    [
        ("l-portinuse", "port_in_use", False, "port: 19051"),
        ("l-missing", "model_not_found", True, "/nope.gguf"),
        ("l-truncated", "model_corrupt", True, "not within the file bounds"),
        ("l-oomctx", "out_of_host_memory", False, "11520.00 MB"),
        ("l-badflag", "bad_argument", True, "--no-such-flag"),
    ],
)
def test_knows_the_failures_of_llama_server(
    case: str, failure: str, permanent: bool, says: str
) -> None:  # spec: A3 R6
    found = diagnose(real(case), 1, ADAPTER, served=False)
    assert (found.failure, found.permanent, found.exit_code) == (failure, permanent, 1)
    assert says in found.message
    assert says in found.log


def test_a_load_fails_for_its_first_cause_and_a_server_for_its_newest() -> None:
    log = ["E cudaMalloc failed: 1", "fine", "E cudaMalloc failed: 2"]
    assert "failed: 1" in diagnose(log, 1, ADAPTER, served=False).message
    assert "failed: 2" in diagnose(log, 1, ADAPTER, served=True).message


@pytest.mark.parametrize(
    ("code", "failure", "permanent", "says"),
    [
        (-4, "illegal_instruction", True, "processor"),
        (-9, "killed", False, "SIGKILL"),
        (-11, "killed", False, "SIGSEGV"),
        (-99, "killed", False, "signal 99"),
        (0, "unknown", False, "exit code 0: last words"),
        (3, "unknown", False, "exit code 3: last words"),
        (None, "unknown", False, "no exit code"),
    ],
)
def test_without_known_words_the_exit_speaks(
    code: int | None, failure: str, permanent: bool, says: str
) -> None:
    found = diagnose(["I all is well", "last words"], code, ADAPTER, served=True)
    assert (found.failure, found.permanent, found.exit_code) == (failure, permanent, code)
    assert says in found.message
    assert found.log.endswith("last words")


def test_an_empty_log_is_no_obstacle() -> None:
    assert diagnose([], 1, ADAPTER, served=False).log == ""


def test_secrets_are_struck_out_in_every_form() -> None:  # spec: A3 W2
    secret = 'a"b\\c'
    log = 'plain a"b\\c json a\\"b\\\\c end'
    assert lines(log, [secret, "", "end"]) == ["plain [secret] json [secret] [secret]"]


def test_the_longer_secret_goes_first() -> None:
    assert lines("key abcdef", ["abc", "abcdef"]) == ["key [secret]"]


def test_control_characters_are_escaped() -> None:  # spec: A3
    log = "red \x1b[31m bell \x07 bidi \u202e tab\there \x9b ok é 漢"
    assert lines(log, ()) == ["red \\x1b[31m bell \\x07 bidi \\u202e tab\there \\x9b ok é 漢"]


def test_a_progress_bar_is_lines() -> None:
    assert lines("10%\r20%\r\n30%\n\n", ()) == ["10%", "20%", "30%"]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=200), st.data())
def test_the_excerpt_holds_its_cause_and_fits(texts: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(texts) - 1))
    excerpt = around(texts, at)
    assert len(excerpt.encode()) <= LOG_BYTES
    assert texts[at] in excerpt


def test_an_endless_line_is_cut() -> None:
    assert len(around(["é" * 10_000], 0).encode()) <= LOG_BYTES


def test_the_newest_step_counts() -> None:  # spec: A3
    log = [
        "0.00.1 I srv    load_model: loading model '/m.gguf'",
        "0.00.5 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 2048",
    ]
    assert progress(log, ADAPTER.steps) == Progress(step="preparing slots")
    assert progress(["nothing of note"], ADAPTER.steps) is None
