import os
import socket

from ctl.ports import free, holder
from tests.support.ports import free_port


def test_a_port_that_somebody_listens_on_is_taken_and_its_holder_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        assert not free(port)
        assert holder(port).startswith(f"pid {os.getpid()} (")


def test_a_free_port_is_free_and_held_by_nobody() -> None:
    port = free_port()
    assert free(port)
    assert holder(port) == ""
