"""The known word that was probably meant, also of very many."""

import pytest

from services.fleet.nearest import MOST_LOOKED_AT, near, nearest


@pytest.mark.parametrize("many", [10, 3 * MOST_LOOKED_AT])
@pytest.mark.parametrize("slip", ["rack-1-node-03x7", "rack-1-nde-0317", "rakk-1-node-0317"])
def test_one_slip_leads_to_the_word_however_many_there_are(slip: str, many: int) -> None:
    known = [f"other-{number:05d}" for number in range(many)] + ["rack-1-node-0317"]
    assert nearest(slip, known) == "rack-1-node-0317"


def test_nothing_near_is_nothing() -> None:
    assert near("qwen", [f"node-{number}" for number in range(3 * MOST_LOOKED_AT)]) == []
