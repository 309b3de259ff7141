from pathlib import Path

import pytest

from services.fleet.settings import Resolved, resolve
from services.router.config import Config, from_settings


def a_config(**flags: str) -> Config:
    found = resolve("router", "", {}, {name.replace("_", "-"): v for name, v in flags.items()})
    assert isinstance(found, Resolved), found
    return from_settings(found)


def test_defaults_serve_on_loopback_with_a_control_plane() -> None:
    """# spec: O8"""
    config = a_config()
    assert (config.listen, config.admin_listen) == ("127.0.0.1:8000", "127.0.0.1:7401")
    assert config.control_plane
    assert config.name is None
    assert config.data == Path(".flotilla/router")
    assert config.timing.limits(stream=True).first_byte == 120
    assert config.timing.limits(stream=False).first_byte == 600
    assert config.timing.connect == 1
    assert config.max_body_bytes == 64 << 20
    assert config.report_seconds == 10


def test_off_is_no_limit() -> None:
    """# spec: O8"""
    config = a_config(first_byte_timeout="off", idle_timeout="off", listen="[::1]:80")
    assert config.timing.limits(stream=True).first_byte is None
    assert config.timing.idle is None
    assert config.listen == "[::1]:80"


def test_static_mode_needs_both_files_and_one_alone_is_a_mistake() -> None:
    """# spec: C4"""
    with pytest.raises(ValueError, match=r"router\.catalog"):
        a_config(control_plane="off")
    with pytest.raises(ValueError, match="together"):
        a_config(catalog="c.yaml")
    both = a_config(control_plane="off", catalog="c.yaml", endpoints="e.yaml")
    assert (both.catalog, both.endpoints) == (Path("c.yaml"), Path("e.yaml"))
