from services.control.clock import Clock
from tests.builders import NOW


def test_time_goes_on_from_the_newest_message() -> None:
    clock = Clock()
    clock.heard(NOW, 10.0)
    assert clock.read(0.0, 12.5) == NOW + 2.5


def test_time_never_runs_behind_what_control_wrote() -> None:
    clock = Clock()
    clock.heard(NOW, 10.0)
    assert clock.read(NOW + 30, 11.0) == NOW + 30


def test_time_never_runs_backwards() -> None:
    clock = Clock()
    clock.heard(NOW, 10.0)
    clock.read(0.0, 20.0)
    clock.heard(NOW - 3600, 20.0)
    assert clock.read(0.0, 21.0) == NOW + 10


# spec: L2
def test_a_restarted_control_goes_on_from_the_log() -> None:
    before, after = Clock(), Clock()
    before.heard(NOW, 10.0)
    after.heard(NOW + 5, 1.0)
    assert after.read(NOW + 4, 2.0) == before.read(NOW + 4, 16.0)


def test_a_step_counts_as_one_second_and_is_told() -> None:
    clock = Clock()
    clock.heard(NOW, 10.0)
    clock.read(0.0, 11.0)
    assert clock.read(0.0, 4011.0) == NOW + 2
    assert clock.steps == [4000.0]
    assert clock.read(0.0, 4012.0) == NOW + 3


def test_an_hour_of_turns_is_an_hour() -> None:
    clock = Clock()
    clock.heard(NOW, 0.0)
    for second in range(3600):
        clock.read(0.0, float(second))
    assert clock.read(0.0, 3600.0) == NOW + 3600
    assert clock.steps == []
