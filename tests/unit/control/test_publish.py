from msgspec.structs import replace

from tests.builders import a_model, a_node
from tests.support.deciding import Fleet


def test_an_ipv6_node_is_published_in_brackets_so_that_host_and_port_can_be_told_apart() -> None:
    fleet = Fleet(replace(a_node("node-1"), address="fd00::7"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    (endpoint,) = fleet.endpoints().values()
    assert endpoint.address.startswith("[fd00::7]:")
