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


def resumed_after(hours: float) -> Clock:
    """The machine was suspended: its monotonic clock stood still while the log's time went on."""
    clock = Clock()
    clock.heard(NOW, 0.0)
    clock.read(0.0, 1.0)
    clock.heard(NOW + 3600 * hours + 1, 1.0)
    clock.read(0.0, 1.0)
    return clock


def test_a_clock_that_stepped_comes_back_to_the_log_without_a_jump() -> None:
    clock = resumed_after(hours=1)
    assert clock.steps == [3600.0]
    before = NOW + 2.0
    for second in range(2, 7300):
        now = clock.read(0.0, float(second))
        assert 1.0 <= now - before <= 1.5, second
        before = now
    assert clock.steps == [3600.0]
    assert before == NOW + 3600 + 7299


def test_a_clock_behind_the_log_goes_on_with_what_another_control_wrote() -> None:
    clock = resumed_after(hours=1)
    assert clock.read(NOW + 3000, 2.0) == NOW + 3000
    before = NOW + 3000
    for second in range(3, 1300):
        now = clock.read(NOW + 3000, float(second))
        assert 1.0 <= now - before <= 1.5, second
        before = now
    assert before == NOW + 3600 + 1299


def test_a_second_step_is_one_second_too() -> None:
    clock = resumed_after(hours=1)
    clock.heard(NOW + 3600 * 3, 1.0)
    assert clock.read(0.0, 1.0) == NOW + 3
    assert clock.steps == [3600.0, 7199.0]


def test_messages_that_come_meanwhile_do_not_hurry_it() -> None:
    clock = resumed_after(hours=1)
    for second in range(2, 100):
        clock.heard(NOW + 3600 + second, float(second))
        clock.read(0.0, float(second))
    assert clock.read(0.0, 100.0) == NOW + 2 + 99 * 1.5 - 0.5
