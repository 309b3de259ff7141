# ruff: noqa: PTH105, PTH123, PTH208, SIM105 - pathlib and contextlib would double its memory.
"""Parent of one engine, in the engine's own session: keeps its exit code when no agent is there.

Run by path with `python -S -E shim.py EXIT_FILE COMMAND…`: the standard library alone, so that it
stays small. It forwards SIGTERM to the engine, and when that has ended it writes `{"rc": …, "at": …}`
to EXIT_FILE and kills what the engine left in the session. While it lives, its pid, which is the
session's id, cannot be given to a stranger.
"""

import json
import os
import signal
import subprocess
import sys
import time

CLEANUP_TRIES = 200
CLEANUP_PAUSE_SECONDS = 0.05


def main(exit_file: str, command: list[str]) -> int:
    """Answers the code to exit with."""
    pending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: pending.append(number))
    try:
        engine = subprocess.Popen(command)  # noqa: S603 - the agent's own command line.
    except OSError as error:
        print(f"shim: cannot run {command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        _write(exit_file, 127)
        return 127
    signal.signal(signal.SIGTERM, lambda number, _frame: engine.send_signal(number))
    for number in pending:  # It came while the engine was being started.
        engine.send_signal(number)
    code = engine.wait()
    _write(exit_file, code)
    _clean_up()
    return code if code >= 0 else 128 - code


def _write(exit_file: str, code: int) -> None:
    aside = f"{exit_file}.tmp"
    with open(aside, "w", encoding="utf-8") as file:
        json.dump({"rc": code, "at": time.time()}, file)  # noqa: TID251 - the shim owns its clock.
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, exit_file)


def _clean_up() -> None:
    for _ in range(CLEANUP_TRIES):
        left = _others()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(CLEANUP_PAUSE_SECONDS)


def _others() -> list[int]:
    """Live members of this session but this process."""
    me = os.getpid()
    return [
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if pid != me and _is_member(pid, me)
    ]


def _is_member(pid: int, session: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and int(fields[3]) == session


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
