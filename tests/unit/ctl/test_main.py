import re
import subprocess
import sys

import click
import pytest

from ctl.failure import Exit
from ctl.main import Lazy, root, run
from ctl.operator import Verb
from schemas.api import ROUTES


def commands(group: Lazy, path: str = "flotilla") -> list[tuple[str, click.Command]]:
    """Every command of the tree, with what is typed for it."""
    found: list[tuple[str, click.Command]] = []
    for name in group.entries:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found.append((f"{path} {name}", command))
        if isinstance(command, Lazy):
            found += commands(command, f"{path} {name}")
    return found


def test_every_verb_of_the_table_is_there_and_explains_itself() -> None:
    for path, command in commands(root):
        assert command.name == path.split()[-1]
        assert command.help or command.context_settings.get("help_option_names") == [], path


def test_a_mistyped_verb_is_not_run_but_suggested(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["statsu"]) == Exit.USAGE
    told = capfd.readouterr()
    assert told.out == ""
    assert "Did you mean 'status'?" in told.err
    assert "next: flotilla --help" in told.err


def test_a_mistyped_option_is_suggested(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--ouput", "json"]) == Exit.USAGE
    assert "Did you mean '--output'?" in capfd.readouterr().err


def test_a_noun_without_a_verb_lists() -> None:
    assert run(["nodes", "-o", "json", "--server", "http://127.0.0.1:9"]) == Exit.UNREACHABLE


def test_no_verb_prints_the_help_and_succeeds(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([]) == Exit.YES
    assert "Start here: flotilla up" in capfd.readouterr().out


def test_next_steps_that_we_print_can_be_typed(capfd: pytest.CaptureFixture[str]) -> None:
    run(["status", "--server", "http://127.0.0.1:9"])
    steps = re.findall(r"next: flotilla (\S+)", capfd.readouterr().err)
    assert steps
    assert set(steps) <= set(root.entries)


def test_every_verb_that_asks_control_takes_the_same_options() -> None:
    verbs = [command for _, command in commands(root) if isinstance(command, Verb)]
    assert len(verbs) >= len(ROUTES) - 1  # All but the state dump have a verb.
    for verb in verbs:
        flags = {flag for param in verb.params for flag in param.opts}
        assert {"--server", "--token-file", "--data", "--config", "--output"} <= flags


HEAVY = {"aiohttp", "asyncio", "nats", "rich", "structlog", "textual", "yaml"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["status", "--server", "http://127.0.0.1:9"], ["version"]]
)
def test_a_verb_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom ctl.main import run\n"
        f"run({arguments!r})\nprint('imported', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = done.stdout.splitlines()[-1].split()
    assert imported[0] == "imported"
    assert HEAVY & set(imported) == set()
