from pathlib import Path

from services.agent.config import Config, configure
from services.fleet.settings import Resolved, resolve


def config(**environ: str) -> Config:
    found = resolve("agent", "", {f"FLOTILLA_{name}": text for name, text in environ.items()}, {})
    assert isinstance(found, Resolved)
    return configure(found)


def test_asks_the_machine_for_what_is_not_set() -> None:  # spec: O8
    found = config()
    assert found.node
    assert found.cores > 0
    assert found.memory_bytes > 0
    assert found.fabric_address == found.address == "127.0.0.1"
    assert [each.name for each in found.environments] == ["llamacpp"]
    assert found.secrets_folder == found.data / "secrets"


def test_control_probes_the_host_that_others_are_told_and_not_every_address() -> None:
    found = config(AGENT_LISTEN="0.0.0.0:7500", AGENT_ADDRESS="10.0.0.5")
    assert (found.listen, found.admin_address) == ("0.0.0.0:7500", "10.0.0.5:7500")
    assert found.address == found.fabric_address == "10.0.0.5"


def test_zero_cores_are_none_and_not_all() -> None:  # spec: O8
    found = config(AGENT_CORES="0", AGENT_MEMORY="0")
    assert (found.cores, found.memory_bytes) == (0.0, 0)


def test_takes_what_is_set() -> None:  # spec: O8
    found = config(
        AGENT_NODE="gpu-7",
        AGENT_LISTEN="[::1]:7500",
        AGENT_PORTS="18000-18009",
        AGENT_SURVIVE="off",
        AGENT_SECRETS_DIR="/run/secrets",
        DATA_DIR="/var/lib/flotilla",
    )
    assert (found.node, found.listen, found.ports) == ("gpu-7", "[::1]:7500", (18000, 18009))
    assert not found.engines_survive
    assert found.secrets_folder == Path("/run/secrets")
    assert found.data == Path("/var/lib/flotilla")
