"""Every command that we tell people to type is one that the command line takes.

They are looked for in the source. What is put into them is named in HOLES, and what may hold any text stands
there as hostile as it can be: a step that does not quote it is a step that cannot be typed.
"""

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ctl.join
import ctl.journal_files
import ctl.operator
from ctl.failure import Exit
from ctl.main import run
from ctl.typed import typed
from services.control.commanding.commands import typed_file, with_reason

ROOT = Path(__file__).parents[3]
HOSTILE = "a b'c; $(d) -x"
QUOTED = shlex.quote(HOSTILE)
PRUNE = f" --prune {QUOTED}"
HOLES: dict[str, tuple[str, ...]] = {
    "VERB": (),  # The file's own.
    "request.revision": ("7",),
    "answer.next_seq": ("7",),
    "shlex.join(words)": (f"--from-seq 7 --for {QUOTED} --type {QUOTED} --follow -o jsonl",),
    "wanted": ("7",),
    "actor.command": ("0192-7c",),
    "sending.mark": ("0a1b",),
    "kind": ("node", "replica", "model"),
    "command_path": ("flotilla", "flotilla nodes", "flotilla catalog apply"),
    "_helped(program)": ("status", "up", "control", "router", "agent", "journal verify"),
    "installed('flotilla')": ("version",),
    "token(node)": ("node-1",),
    "node": ("node-1",),  # Checked before.
    "way": ("memory", "log", "agents"),
    "request.way": ("memory", "log", "agents"),
    "typed_file(request.file)": (typed_file(HOSTILE), typed_file("-x"), typed_file("")),
    "with_reason(request.reason)": ("", with_reason(HOSTILE)),
    "end": ("", with_reason(HOSTILE)),
    "gone": ("", " --gone"),
    "' --catalog FILE' if needs_catalog else ''": ("", " --catalog FILE"),
    "file": ("", f" --catalog {typed_file(HOSTILE)}"),
    "prune": ("", PRUNE),
    "without": ("", f" --without {QUOTED}"),
    "verb": ("status", "replicas", "catalog show", "catalog apply FILE", "join create NODE"),
    "_data(plan)": ("", f" --data {QUOTED}"),
}


def commands() -> Iterator[str]:
    """Each text of the source that begins with our command's name, with what may stand in its holes."""
    for folder in ("ctl", "services"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.name == "typed.py":  # Knows verbs by how they begin.
                continue
            tree = ast.parse(file.read_text())
            inside = {id(part) for node in ast.walk(tree) for part in _parts(node)}
            verb = _verb(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inside:
                    yield from _told(node, verb)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Of a text that is put together; and what is a docstring."""
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in ast.walk(node) if part is not node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value


def _verb(tree: ast.Module) -> str:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERB":
            return str(ast.literal_eval(node.value))
    return ""


def _told(node: ast.Constant | ast.JoinedStr, verb: str) -> Iterator[str]:
    pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [""]
    for piece in pieces:
        found = _filled(piece, verb) if _is_ours(texts, piece) else ("",)
        texts = [text + each for text in texts for each in found]
    for text in texts:
        begun = text[text.find("; flotilla ") + 2 :] if "; flotilla " in text else text.lstrip()
        if begun.startswith("flotilla ") and begun != "flotilla ":
            yield begun


def _is_ours(texts: list[str], piece: ast.expr) -> bool:
    """Holes matter only in what is a command."""
    return isinstance(piece, ast.Constant) or not texts[0].strip() or "flotilla " in texts[0]


def _filled(piece: ast.expr, verb: str) -> tuple[str, ...]:
    if isinstance(piece, ast.Constant):
        return (piece.value if isinstance(piece.value, str) else "",)
    assert isinstance(piece, ast.FormattedValue)
    hole = ast.unparse(piece.value)
    if hole == "VERB":
        return (verb,)
    if hole.startswith("shlex.quote("):
        return (QUOTED,)
    return HOLES.get(hole, (HOSTILE,))


STEPS = sorted(set(commands()))
SAID = (
    "--data",
    "/a b",
    "--config",
    "c",
    "--server=http://h:1",
    "--token-file",
    "/t u",
    "--nats-url",
    "u",
)


@pytest.fixture
def parsed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line is read as ever, and no verb runs."""
    for kind in (click.Command, ctl.join.Verb, ctl.journal_files.Verb, ctl.operator.Verb):
        monkeypatch.setattr(kind, "invoke", _nothing)


def _nothing(_command: click.Command, _context: click.Context) -> None:
    pass


def test_steps_are_found_in_all_that_tells_them() -> None:
    assert len(STEPS) > 50
    for each in ("flotilla up", f"flotilla journal mend {QUOTED}", "flotilla catalog rollback r7"):
        assert each in STEPS


@pytest.mark.parametrize("said", [(), SAID], ids=["here", "elsewhere"])
@pytest.mark.parametrize("step", STEPS)
def test_what_we_tell_people_to_type_can_be_typed(
    step: str, said: tuple[str, ...], parsed_alone: None
) -> None:
    program, *words = shlex.split(typed(step, {}, said))
    assert program == "flotilla"
    assert run(words) == Exit.YES


def test_a_step_that_cannot_be_typed_is_seen(parsed_alone: None) -> None:
    for words in (["operator", "--help"], ["journal", "mend", "a", "b"], ["status", "--sever"]):
        assert run(words) == Exit.USAGE
