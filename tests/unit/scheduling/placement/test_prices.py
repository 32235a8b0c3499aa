"""Lagrangian bounds are never below the optimum, whatever the prices and units."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Effort, PlacementProblem, price_phases
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, pack
from tao_coordinator.scheduling.placement.plan import Rung, check_feasible
from tao_coordinator.scheduling.placement.prices import Relaxation, repair
from tao_coordinator.scheduling.placement.problem import Int64, Objective
from tao_coordinator.scheduling.placement.views import down_to, packed_view, with_units


def packed_value(packed: PackedProblem, objective: Objective) -> int:
    return sum(value * unit for value, unit in zip(objective, packed.units, strict=True))


def meter() -> Meter:
    return Meter(Effort(work=10**9))


def some_prices(packed: PackedProblem, shares: list[float]) -> Int64:
    """A share of each session's best value."""
    best = np.maximum(packed.pairs.values.max(axis=1, initial=0), 0)
    share = np.array([shares[i % len(shares)] for i in range(len(best))])
    return np.rint(best * share).astype(np.int64)


shares = st.lists(st.floats(0, 1), min_size=1, max_size=5)


@given(problems(), shares, st.integers(0, 50))
def test_relaxation_bounds_every_plan_at_any_prices(
    problem: PlacementProblem, shares: list[float], tolerance: int
) -> None:
    packed = pack(problem)
    best = packed_value(packed, optimum(problem))
    relaxation = Relaxation(packed.pairs, meter())
    prices = some_prices(packed, shares)
    exact = relaxation.evaluate(prices)
    assert exact >= best
    loose = Relaxation(packed.pairs, meter()).evaluate(prices, tolerance)
    assert loose >= exact


@given(problems(), shares, shares)
def test_relaxation_remembers_only_what_still_holds(
    problem: PlacementProblem, first: list[float], second: list[float]
) -> None:
    """A second evaluation equals a fresh one, although unchanged backends are not solved again."""
    packed = pack(problem)
    used = Relaxation(packed.pairs, meter())
    used.evaluate(some_prices(packed, first), tolerance=7)
    fresh = Relaxation(packed.pairs, meter())
    prices = some_prices(packed, second)
    assert used.evaluate(prices) == fresh.evaluate(prices)
    assert packed.pairs.values[used.taken].sum() == packed.pairs.values[fresh.taken].sum()


@given(problems(), shares, st.lists(st.integers(0, 10**6), min_size=3, max_size=3))
def test_finite_units_bound_what_is_left_below_proved_coordinates(
    problem: PlacementProblem, shares: list[float], units: list[int]
) -> None:
    """With the optimum's class, credit and ready sums as proved, tokens follow for any units."""
    packed = pack(problem)
    best = optimum(problem)
    reached = packed.digits(packed_value(packed, best))
    view = packed_view(packed)
    finite = (units[0], units[1], units[2], packed.units[3], packed.units[4])
    view = with_units(packed, view, finite, reached)
    prices = some_prices(packed, shares)
    bound = Relaxation(view.pairs, meter()).evaluate(prices) + view.offset
    assert bound >= packed_value(packed, best)


@given(problems(), st.integers(0, 3))
def test_looking_down_to_a_coordinate_rounds_down(problem: PlacementProblem, to: int) -> None:
    packed = pack(problem)
    seen = down_to(packed, packed_view(packed), to).values
    unit = packed.units[to] if to < 3 else 1
    values = packed.pairs.values
    expected = np.where(values >= unit, values // unit * unit, -1)
    assert (seen == expected).all()


@given(problems())
def test_descent_keeps_plan_and_bound_on_their_sides(problem: PlacementProblem) -> None:
    packed = pack(problem)
    best = packed_value(packed, optimum(problem))
    incumbent = Incumbent(packed)
    view = packed_view(packed)
    for coordinate in range(4):
        if not packed.sums_max[coordinate]:
            continue
        view = price_phases.descend(packed, view, coordinate, incumbent, meter())
        check_feasible(problem, incumbent.backend_of)
        assert incumbent.value <= best <= incumbent.bound
        assert (view.prices >= 0).all()
        if incumbent.certificate().num_proved <= coordinate:
            break


@given(problems(), shares)
def test_repair_places_each_session_at_most_once_and_keeps_budgets(
    problem: PlacementProblem, shares: list[float]
) -> None:
    packed = pack(problem)
    relaxation = Relaxation(packed.pairs, meter())
    relaxation.evaluate(some_prices(packed, shares))
    check_feasible(problem, repair(packed.pairs.values, relaxation.taken))


@given(problems())
def test_incumbent_only_improves(problem: PlacementProblem) -> None:
    packed = pack(problem)
    incumbent = Incumbent(packed)
    before = incumbent.objective
    draw = np.random.default_rng(0)
    for _ in range(5):
        offered = draw.integers(-1, problem.num_backends, problem.num_sessions)
        try:
            check_feasible(problem, offered)
        except AssertionError:
            continue
        incumbent.offer(offered, Rung.TRIVIAL)
        assert incumbent.objective >= before
        before = incumbent.objective
