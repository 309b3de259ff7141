"""Measures the log: append, restart, fan-out, fold. See docs/performance.md.

.venv/bin/python bench/log.py restart --folder /tmp/logs
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # Run as a file: modules are named from the root.

from bench import log_append, log_fanout, log_fold, log_lead, log_restart  # noqa: E402
from services.runtime.process import configure_logging  # noqa: E402


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _sized(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=50_000)
    parser.add_argument("--models", type=int, default=80)


def parse(argv: Sequence[str]) -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    append = commands.add_parser("append", help=log_append.__doc__)
    append.add_argument("--batches", type=_numbers, default=[1, 10, 100, 500])
    append.add_argument("--copies", type=_numbers, default=[1, 3])
    append.add_argument("--seconds", type=float, default=5.0, help="for each size")
    append.set_defaults(run=log_append.run)

    fanout = commands.add_parser("fanout", help=log_fanout.__doc__)
    fanout.add_argument("--followers", type=int, default=100)
    fanout.add_argument("--processes", type=int, default=4)
    fanout.add_argument("--models", type=int, default=50)
    fanout.add_argument("--changes", type=int, default=200)
    fanout.add_argument("--pause", type=float, default=0.05, help="seconds between two changes")
    fanout.set_defaults(run=log_fanout.run)

    fold = commands.add_parser("fold", help=log_fold.__doc__)
    _sized(fold)
    fold.add_argument("--rounds", type=int, default=5)
    fold.set_defaults(run=log_fold.run)

    restart = commands.add_parser("restart", help=log_restart.__doc__)
    _sized(restart)
    restart.add_argument("--history", type=_numbers, default=[100_000, 300_000, 1_000_000])
    restart.add_argument("--rounds", type=int, default=5)
    restart.add_argument("--folder", help="keeps the written logs here, for the next time")
    restart.set_defaults(run=log_restart.run)

    lead = commands.add_parser("lead", help=log_lead.__doc__)
    _sized(lead)
    lead.add_argument("--history", type=_numbers, default=[100_000])
    lead.add_argument("--seconds", type=float, default=30.0, help="for each of the two stretches")
    lead.add_argument("--every", type=float, default=0.2)
    lead.add_argument("--folder", help="keeps the written logs here, for the next time")
    lead.set_defaults(run=log_lead.run)
    return parser.parse_args(argv)


if __name__ == "__main__":
    configure_logging("bench", "warning")
    options = parse(sys.argv[1:])
    sys.exit(options.run(options))
