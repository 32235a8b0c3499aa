"""The reserve for growth against cases that can be reckoned by hand, and its limits."""

import random

import pytest

from tao_coordinator.core.growth import ENDED_MAX, SessionGrowth


def learned(turns: int, growth: int = 100) -> SessionGrowth:
    """Hundreds of sessions of exactly so many turns, each growing by exactly `growth`."""
    known = SessionGrowth()
    for _ in range(ENDED_MAX):
        known.ended(turns)
        known.grew(growth)
    return known


def test_nobody_seated_needs_nothing() -> None:
    assert SessionGrowth().reserve_tokens([], 100.0, 1, 3.0) is None


def test_young_sessions_that_are_all_alike_need_what_they_will_grow() -> None:
    """Ten turns each: the peak is before the last one, at the ninth; 8 is the horizon looked at."""
    reserve = learned(10).reserve_tokens([(0, 1_000)] * 50, 100.0, 1, 0.0)
    # A prior of five sessions, a 25th of whom ends at each turn, takes a little off.
    assert reserve == pytest.approx(800, rel=0.03)


def test_sessions_about_to_end_need_nothing() -> None:
    reserve = learned(10).reserve_tokens([(9, 1_900)] * 50, 100.0, 1, 0.0)
    assert reserve == 0.0


def test_sessions_of_all_ages_give_to_each_other() -> None:
    """In a steady state as much is given up as is taken: nothing is needed beside it."""
    seats = [(age, 1_000 + 100 * age) for age in range(10)] * 10
    reserve = learned(10).reserve_tokens(seats, 100.0, 1, 0.0)
    assert reserve == pytest.approx(0.0, abs=5.0)


def test_margin_pools_over_seats_and_not_over_backends() -> None:
    known = SessionGrowth()
    few, many = [(5, 10_000)] * 4, [(5, 10_000)] * 400

    def margin(seats: list[tuple[int, int]], num_backends: int) -> float:
        reserve = known.reserve_tokens(seats, 0.0, num_backends, 3.0)
        assert reserve is not None
        return reserve

    # Without growth the peak is one of the margins alone: it shrinks with the root of the number.
    assert margin(few, 1) > 2 * margin(many, 1) > 0.0
    # A hundred seats on each of four backends are worth as much as a hundred on one.
    assert margin(many, 4) == pytest.approx(margin([(5, 10_000)] * 100, 1), rel=1e-9)


def test_expected_peak_agrees_with_drawn_futures() -> None:
    """The mean of many futures, drawn session by session from the ended ones, at the same turns."""
    chance = random.Random(5)
    lengths = [chance.randint(3, 30) for _ in range(ENDED_MAX)]
    known = SessionGrowth()
    for length in lengths:
        known.ended(length)
    seats = [(chance.randint(1, 8), chance.randint(1_000, 9_000)) for _ in range(40)]
    sums = dict.fromkeys((1, 2, 3, 4, 6, 8, 12, 16, 24), 0.0)
    num_futures = 1_500
    for _ in range(num_futures):
        for turns, tokens in seats:
            length = chance.choice([x for x in lengths if x > turns])
            for k in sums:
                if turns + k < length:
                    sums[k] += tokens + 200.0 * k
    drawn = max(0.0, max(sums.values()) / num_futures - sum(tokens for _, tokens in seats))
    reserve = known.reserve_tokens(seats, 200.0, 1, 0.0)
    assert reserve is not None
    total = sum(tokens for _, tokens in seats)
    assert reserve * len(seats) == pytest.approx(drawn, abs=0.04 * total)


def test_wild_growth_asks_for_more_room_than_even_growth() -> None:
    even, wild = SessionGrowth(), SessionGrowth()
    for number in range(400):
        even.grew(500)
        wild.grew(10_000 if number % 20 == 0 else 0)
    seats = [(3, 20_000)] * 30
    calm = even.reserve_tokens(seats, 500.0, 1, 3.0)
    rough = wild.reserve_tokens(seats, 500.0, 1, 3.0)
    assert calm is not None and rough is not None
    assert rough > calm


@pytest.mark.parametrize("turns", [0, 1, 255, 256, 100_000])
def test_any_number_of_turns_is_taken(turns: int) -> None:
    known = SessionGrowth()
    known.ended(turns)
    known.grew(-5_000)
    reserve = known.reserve_tokens([(turns, 1_000)], 100.0, 1, 3.0)
    assert reserve is not None
    assert reserve >= 0.0
