from hypothesis import example, given
from hypothesis import strategies as st

from schemas import subjects
from schemas.ids import ModelName, NodeId, token


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=48))
def test_a_clean_name_stands_for_itself(name: str) -> None:
    if len(name) < 10 or name[-10:-8] != "-x":
        assert token(name) == name


@given(st.text())
@example("")
@example("Qwen/Qwen3-235B-A22B")
@example("a" * 300)
@example("evil.>.*")
def test_every_token_may_stand_in_a_subject(name: str) -> None:
    made = token(name)
    assert 1 <= len(made) <= 48
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_names_that_clean_to_the_same_keep_apart() -> None:
    assert token("Qwen/3") != token("qwen-3") != token("QWEN/3")


def test_nobody_can_name_himself_as_anothers_token() -> None:
    taken = token("Qwen/3")
    assert token(taken) != taken


def test_subjects_hold_tokens_only() -> None:
    assert subjects.node_info(NodeId("GPU 1")).startswith("flotilla.log.s.node.gpu-1-x")
    assert subjects.endpoints(ModelName("tiny"), 3) == "flotilla.log.s.endpoints.tiny.03"
    assert subjects.logged(subjects.live(subjects.CATALOG)) == subjects.CATALOG


def test_revisions_use_two_hundred_subjects() -> None:
    assert len({subjects.catalog_revision(n) for n in range(1000)}) == 200
