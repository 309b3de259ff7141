import pytest

from services.control.config import Config, from_settings
from services.fleet.settings import Resolved, resolve


def a_config(**flags: str) -> Config:
    found = resolve("control", "", {}, flags)
    assert isinstance(found, Resolved), found
    return from_settings(found)


def test_callers_are_sent_to_where_it_listens_unless_another_host_is_named() -> None:
    # spec: O8
    assert a_config().address == a_config().listen == "127.0.0.1:7400"
    found = a_config(listen="0.0.0.0:7400", address="control.example")
    assert (found.listen, found.address) == ("0.0.0.0:7400", "control.example:7400")


# spec: O8 L3
def test_silence_that_makes_a_node_unreachable_can_be_set_and_can_be_off() -> None:
    assert a_config().unreachable_after == 5.0
    assert a_config(**{"unreachable-after": "30s"}).unreachable_after == 30.0
    assert a_config(**{"unreachable-after": "off"}).unreachable_after is None
    with pytest.raises(ValueError, match="at least 3s"):
        a_config(**{"unreachable-after": "2s"})
    refused = resolve("control", "", {}, {"unreachable-after": "0"})
    assert not isinstance(refused, Resolved)
