"""When clients try again to connect."""

import random
from collections import Counter
from itertools import accumulate, islice

import pytest

from services.log.connect import LAST_RETRY_SECONDS, pauses

CLIENTS = 1000


def first_try_after(seconds: float, client: int) -> float:
    """Of one that lost its server at 0, and finds it again at `seconds`."""
    tries = accumulate(pauses(random.Random(client).uniform))
    return next(at for at in tries if at >= seconds)


# case: JS-05
@pytest.mark.parametrize("away", [0.2, 1.0, 4.0, 60.0, 3600.0])
def test_a_thousand_clients_do_not_come_back_at_one_moment(away: float) -> None:
    back = [first_try_after(away, client) for client in range(CLIENTS)]
    tenths = Counter(int((at - away) * 10) for at in back)
    assert max(back) <= away + LAST_RETRY_SECONDS
    if away >= LAST_RETRY_SECONDS:
        assert max(tenths.values()) <= CLIENTS / 8


def test_pauses_grow_to_a_limit() -> None:
    longest = list(islice(pauses(lambda _low, high: high), 9))
    assert longest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
