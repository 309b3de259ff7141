"""The `flotilla` command. A verb's module is imported only when that verb runs: `--help` stays quick
and a script that asks for status pays for nothing else.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from ctl.failure import Exit, Failure
from ctl.render import complain
from services.runtime.saying import Unread, unread


class Entry(NamedTuple):
    """Where a verb lives, and its line in the help."""

    place: str
    help: str


class Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *args: Any, entries: dict[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """In the order of the table."""
        return list(self.entries)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import it."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As the base class, with suggestions out of the table."""
        if args[0] not in self.entries and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.entries, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """From the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])


class Noun(Lazy):
    """A group whose first verb needs not be said: `flotilla nodes -o json` is `flotilla nodes list -o json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first verb where none stands."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [next(iter(self.entries)), *args]
        return super().parse_args(ctx, args)


def noun(name: str, module: str, summary: str) -> Noun:
    """The usual two verbs of a noun."""
    return Noun(
        name,
        help=summary,
        entries={
            "list": Entry(f"{module}:list_all", "All of them (also without a verb)"),
            "show": Entry(f"{module}:show", "One of them, with everything known"),
        },
    )


nodes = noun("nodes", "ctl.nodes", "Machines with an agent.")
replicas = noun("replicas", "ctl.replicas", "Running copies of models.")
models = noun("models", "ctl.models", "What clients can ask for.")
catalog = Lazy(
    "catalog",
    help="The desired state: models and how each is to run.",
    entries={
        "validate": Entry("ctl.catalog:validate", "Check a file; needs no server"),
        "apply": Entry("ctl.catalog:apply", "Make a file the current catalog"),
        "show": Entry("ctl.catalog:show", "The current catalog or a revision, as a file"),
        "history": Entry("ctl.catalog_history:history", "The revisions that are kept"),
        "diff": Entry("ctl.catalog_history:diff", "What differs between two revisions"),
        "rollback": Entry("ctl.catalog_history:rollback", "Make an earlier revision current again"),
    },
)
brake = Noun(
    "brake",
    help="What mass silence holds back.",
    entries={
        "show": Entry(
            "ctl.brake:show", "Whether it is on, and what it holds (also without a verb)"
        ),
        "off": Entry("ctl.brake:off", "End it: silent nodes may be given up"),
    },
)
why = Lazy(
    "why",
    help="How something came to be as it is, and what it waits for.",
    entries={
        "node": Entry("ctl.why:node", "Why a node is silent or runs what it runs"),
        "replica": Entry("ctl.why:replica", "Why a replica is where and as it is"),
        "model": Entry("ctl.why:model", "Why a model is not placed, not ready, or gone"),
        "gpu": Entry("ctl.why:gpu", "Why a card is held, and by whom"),
    },
)
join = Lazy(
    "join",
    help="Machines that may come in beside this one.",
    entries={
        "create": Entry("ctl.join:create", "Let a machine in, and write the file for its agent"),
        "list": Entry("ctl.join:list_all", "Nodes that may come in"),
        "revoke": Entry("ctl.join:revoke_one", "Let a node in no more"),
        "entry": Entry("ctl.join:entry", "A user, for the configuration of a NATS of your own"),
    },
)
config = Lazy(
    "config",
    help="Settings of the programs.",
    entries={"show": Entry("ctl.config:show", "Each setting, its value, and where it came from")},
)
journal = Lazy(
    "journal",
    help="The log itself: the ways out when it is damaged, and bad documents.",
    entries={
        "recover": Entry("ctl.journal_recover:recover", "Go on after the log was lost or damaged"),
        "export": Entry("ctl.journal_files:export", "Write the log to files, and go on with them"),
        "import": Entry("ctl.journal_files:import_", "Make an exported log anew, in an empty NATS"),
        "verify": Entry("ctl.journal_files:verify", "Whether the log is sound, event by event"),
        "mend": Entry("ctl.journal_mend:mend", "Put right a document that cannot be read"),
    },
)

root = Lazy(
    "flotilla",
    help="A control plane for fleets of LLM inference servers.",
    epilog="Start here: flotilla up",
    entries={
        "up": Entry("ctl.up:up", "Everything on this machine, with a small model"),
        "status": Entry("ctl.status:status", "The fleet on one page"),
        "nodes": Entry("ctl.main:nodes", "Machines with an agent"),
        "replicas": Entry("ctl.main:replicas", "Running copies of models"),
        "models": Entry("ctl.main:models", "What clients can ask for"),
        "catalog": Entry("ctl.main:catalog", "The desired state: apply, history, rollback, …"),
        "events": Entry("ctl.events:events", "What happened, out of the log"),
        "why": Entry("ctl.main:why", "How something came to be as it is"),
        "explain-placement": Entry("ctl.explain:explain_placement", "Why a model is where it is"),
        "journal": Entry("ctl.main:journal", "The log: recover it, mend it"),
        "brake": Entry("ctl.main:brake", "What mass silence holds back, and its end"),
        "join": Entry("ctl.main:join", "Let other machines in, or no more"),
        "config": Entry("ctl.main:config", "Settings, and where each value came from"),
        "control": Entry("ctl.programs:control", "Run the control service"),
        "router": Entry("ctl.programs:router", "Run a router"),
        "agent": Entry("ctl.programs:agent", "Run a node's agent"),
        "healthcheck": Entry("ctl.health:healthcheck", "Ask a program of this machine how it is"),
        "version": Entry("ctl.version:version", "Print the version"),
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Console script: run one verb, end with its exit code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one verb; returns the exit code. A verb returns one, or None for success."""
    stdout = sys.stdout
    try:
        code = root.main(arguments or ["--help"], prog_name="flotilla", standalone_mode=False)
    except click.ClickException as error:
        return complain(_misused(error))
    except Failure as failure:
        return complain(failure)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except Unread as error:
        return unread(error.__cause__)
    except SystemExit:  # Click's own end where help meets a closed pipe, which it then covers up.
        if sys.stdout is stdout:
            raise
        return unread(BrokenPipeError())
    return code if isinstance(code, int) else Exit.YES


def _misused(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command_path = context.command_path if context else "flotilla"
    return Failure(Exit.USAGE, "usage", error.format_message(), steps=[f"{command_path} --help"])


if __name__ == "__main__":
    main()
