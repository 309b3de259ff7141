"""Addresses that programs tell of themselves."""

import pytest

from services.fleet.addresses import Address, parsed


@pytest.mark.parametrize("text", ["10.0.0.7:7402", "[fd00::7]:1", "gpu-7.example.test:65535"])
def test_an_address_is_read_as_it_was_joined(text: str) -> None:
    found = parsed(text)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        "host:0",
        "host:65536",
        "host:08",
        "fd00::7:80",
        "[host]:80",
        "0.0.0.0:80",
        "a\r\nb:80",
        ":80",
    ],
)
def test_what_nobody_can_be_reached_at_is_no_address(text: str) -> None:
    assert parsed(text) is None


def test_an_address_has_its_host_without_brackets() -> None:
    assert parsed("[::1]:80") == Address("::1", 80)
