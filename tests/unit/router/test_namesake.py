from services.router.namesake import LIVES_SECONDS, Namesakes


def test_a_router_is_no_namesake_of_itself() -> None:
    names = Namesakes("own")
    names.heard("own", 0.0)
    names.heard("own", 1.0)
    assert names.living(1.0) == ()
    assert not names.lives("own", 1.0)


def test_one_late_beat_of_an_earlier_start_is_none() -> None:
    names = Namesakes("own")
    names.heard("earlier", 0.0)
    assert names.living(0.0) == ()
    names.heard("earlier", LIVES_SECONDS + 1)
    assert names.living(LIVES_SECONDS + 1) == ()


def test_who_beats_on_lives_until_it_is_silent() -> None:
    names = Namesakes("own")
    for second in (0.0, 1.0):
        names.heard("b", second)
        names.heard("a", second)
    assert names.living(1.0) == ("a", "b")
    names.heard("b", 2.0)
    assert names.living(1.5 + LIVES_SECONDS) == ("b",)
    assert names.lives("b", 2.0 + LIVES_SECONDS)
    assert not names.lives("b", 2.5 + LIVES_SECONDS)
    assert names.living(2.5 + LIVES_SECONDS) == ()
    names.heard("b", 20.0)
    assert not names.lives("b", 20.0)
