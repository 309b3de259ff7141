"""The outer frame of a program, in a process of its own."""

import os
import subprocess
import sys

SAYS = """
import structlog
from services.runtime.process import configure_logging

configure_logging("control")
structlog.get_logger().info("said", number=1)
print("went on")
"""


def test_a_stderr_that_nobody_reads_any_more_ends_no_program() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", SAYS], stdout=subprocess.PIPE, stderr=writing, check=False
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stdout) == (0, b"went on\n")


def test_a_record_is_one_line_of_json() -> None:
    ended = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, check=True)
    lines = ended.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(b'{"')
    assert b'"program":"control"' in lines[0]
