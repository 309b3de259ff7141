"""What a delivered message says of itself."""

import pytest

from services.log.pull import Position, position


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.FLOTILLA_LOG.r1.1.42.7.1796063777982091130.3",
        "$JS.ACK.hub.ACCOUNT.FLOTILLA_LOG.r1.1.42.7.1796063777982091130.3",
    ],
)
def test_both_forms_of_the_reply_subject_are_read(reply: str) -> None:
    assert position(reply) == Position(42, 7, 1796063777.982091130, 3)
