"""What is told in the log fits one message of it."""

import json

import pytest
from msgspec import DecodeError, Struct

from schemas import codec
from schemas.api import ApplyCatalog
from schemas.brake import ReleaseBrake
from schemas.history import RollbackCatalog
from schemas.recovery import Mend, Recover

LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (ApplyCatalog, "reason", LONG),
        (ApplyCatalog, "file", LONG),
        (ApplyCatalog, "prune", [LONG]),
        (ApplyCatalog, "prune", ["x"] * 20_000),
        (RollbackCatalog, "reason", LONG),
        (RollbackCatalog, "prune", [LONG]),
        (ReleaseBrake, "reason", LONG),
        (Mend, "reason", LONG),
        (Mend, "subject", LONG),
        (Recover, "reason", LONG),
        (Recover, "file", LONG),
        (Recover, "prune", [LONG]),
    ],
)
def test_a_text_that_is_too_long_is_not_read(
    kind: type[Struct], field: str, value: str | list[str]
) -> None:
    whole = {"source": "", "revision": 1, "state": "off", "subject": "s", "way": "log"}
    short: list[str] | str = [] if field == "prune" else "x"
    codec.decode(json.dumps(whole | {field: short}).encode(), kind)
    with pytest.raises(DecodeError, match=field):
        codec.decode(json.dumps(whole | {field: value}).encode(), kind)
