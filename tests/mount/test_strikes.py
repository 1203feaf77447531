"""How long a request has a strike, and how long it is refused: on a clock that the tests set."""

import pytest
from touchfs_mount.requests.strikes import PLACES, REFUSED_SECONDS, STRIKE_SECONDS, Strikes

KEY = 12345


class Clock:
    """Nanoseconds since the test began; `pass_` lets seconds go by."""

    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        return self.time

    def pass_(self, seconds: float) -> None:
        self.time += int(seconds * 1e9)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def strikes(clock):
    return Strikes(2, 4, clock)


def run_and_die(strikes, key=KEY, *, badly=True):
    strikes.running(1)[0] = key
    return strikes.ended(1, badly=badly)


def test_a_strike_expires_after_an_hour(strikes, clock):
    assert run_and_die(strikes) == 1
    clock.pass_(STRIKE_SECONDS - 1)
    assert strikes.has(KEY)
    assert not strikes.is_refused(KEY)
    clock.pass_(1)
    assert not strikes.has(KEY)


def test_another_strike_begins_the_hour_anew(strikes, clock):
    run_and_die(strikes)
    clock.pass_(STRIKE_SECONDS - 1)
    run_and_die(strikes)
    clock.pass_(STRIKE_SECONDS - 1)
    assert strikes.has(KEY)


def test_a_request_is_refused_for_a_minute_and_then_runs_alone(strikes, clock):
    strikes.refuse(KEY)
    clock.pass_(REFUSED_SECONDS - 1)
    assert strikes.is_refused(KEY)
    clock.pass_(1)
    assert not strikes.is_refused(KEY)
    assert strikes.has(KEY)
    clock.pass_(STRIKE_SECONDS - REFUSED_SECONDS)
    assert not strikes.has(KEY)


def test_a_strike_after_the_hour_does_not_bring_the_refusal_back(strikes, clock):
    strikes.refuse(KEY)
    clock.pass_(STRIKE_SECONDS)
    run_and_die(strikes)
    assert strikes.has(KEY)
    assert not strikes.is_refused(KEY)


def test_a_request_that_takes_the_cell_of_another_is_not_refused(strikes):
    """The keys of both are in one cell: the later one counts."""
    strikes.refuse(KEY)
    run_and_die(strikes, KEY + PLACES)
    assert not strikes.has(KEY)
    assert strikes.has(KEY + PLACES)
    assert not strikes.is_refused(KEY + PLACES)


def test_an_answer_removes_the_strike_of_its_request_only(strikes):
    run_and_die(strikes)
    strikes.forgive(KEY + PLACES)
    assert strikes.has(KEY)
    strikes.forgive(KEY)
    assert not strikes.has(KEY)


def test_a_worker_that_ends_well_leaves_no_strike(strikes):
    assert run_and_die(strikes, badly=False) == 0
    assert not strikes.has(KEY)
    assert run_and_die(strikes, 0) == 0, "it ran nothing"
