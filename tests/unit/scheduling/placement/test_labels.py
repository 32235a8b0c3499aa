"""The label search finds the optimum, prunes nothing that matters, and says what it dropped."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Effort, PlacementProblem, labels
from tao_coordinator.scheduling.placement.bounds import best_pairs, surrogate
from tao_coordinator.scheduling.placement.completion import Completion
from tao_coordinator.scheduling.placement.effort import EffortSpent, Meter
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, pack
from tao_coordinator.scheduling.placement.pegging import peg
from tao_coordinator.scheduling.placement.plan import check_feasible
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.placement.views import down_to, packed_view


def meter() -> Meter:
    return Meter(Effort(work=10**9))


def best_value(problem: PlacementProblem, packed: PackedProblem) -> int:
    best = optimum(problem)
    return sum(value * unit for value, unit in zip(best, packed.units, strict=True))


def some_prices(packed: PackedProblem, share: float) -> Int64:
    best = np.maximum(packed.pairs.values.max(axis=1, initial=0), 0)
    return np.rint(best * share).astype(np.int64)


def ask(packed: PackedProblem, more_than: int, share: float) -> labels.Question:
    bounding = labels.Bounding(packed.pairs, some_prices(packed, share), more_than)
    return labels.Question(packed.pairs.values, more_than, (bounding,))


@given(problems(), st.floats(0, 1))
def test_search_finds_the_optimum_at_any_prices(problem: PlacementProblem, share: float) -> None:
    packed = pack(problem)
    answer = labels.search(ask(packed, 0, share), 10**6, meter())
    best = best_value(problem, packed)
    if best == 0:
        assert answer.backend_of is None
        return
    assert answer.backend_of is not None
    check_feasible(problem, answer.backend_of)
    assert packed.pairs.value_of(answer.backend_of) == best
    assert answer.excess >= best


@given(problems(), st.floats(0, 1))
def test_search_proves_that_nothing_is_better_than_the_optimum(
    problem: PlacementProblem, share: float
) -> None:
    packed = pack(problem)
    answer = labels.search(ask(packed, best_value(problem, packed), share), 10**6, meter())
    assert answer.backend_of is None
    assert answer.excess == 0


@given(problems(), st.floats(0, 1), st.integers(1, 6))
def test_narrow_beam_never_claims_too_much(
    problem: PlacementProblem, share: float, beam: int
) -> None:
    packed = pack(problem)
    best = best_value(problem, packed)
    answer = labels.search(ask(packed, best // 2, share), beam, meter())
    found = 0 if answer.backend_of is None else packed.pairs.value_of(answer.backend_of)
    assert found <= best
    assert best // 2 + answer.excess >= best
    if answer.excess == 0:
        assert best <= best // 2


@given(problems(), st.floats(0, 1))
def test_search_cut_short_never_claims_too_much(problem: PlacementProblem, share: float) -> None:
    packed = pack(problem)
    best = best_value(problem, packed)
    spent = Meter(Effort(work=400))
    try:
        answer = labels.search(ask(packed, 0, share), 10**6, spent)
    except EffortSpent:
        return
    assert answer.excess >= best
    if answer.backend_of is not None:
        check_feasible(problem, answer.backend_of)


@given(problems(), st.integers(0, 2), st.floats(0, 1))
def test_chains_lose_nothing_in_the_coordinate_asked_about(
    problem: PlacementProblem, coordinate: int, share: float
) -> None:
    packed = pack(problem)
    unit = packed.units[coordinate]
    view = packed_view(packed)
    seen = down_to(packed, view, coordinate)
    best = best_value(problem, packed) // unit * unit
    bounding = labels.Bounding(seen, some_prices(packed, share), best - 1)
    question = labels.Question(seen.values, best - 1, (bounding,))
    answer = labels.search(question, 10**6, meter())
    if best > 0:
        assert answer.backend_of is not None
        reached = packed.pairs.value_of(answer.backend_of) // unit * unit
        assert reached == best
    nothing = labels.search(
        labels.Question(seen.values, best, (bounding._replace(floor=best),)), 10**6, meter()
    )
    assert nothing.backend_of is None
    assert nothing.excess == 0


def test_chain_of_equal_sessions_falls_in_weight() -> None:
    pairs = Pairs(
        values=np.array([[5, 5], [5, 5], [5, 5], [7, 5], [5, -1]], np.int64),
        weights=np.array([[3, 3], [9, 9], [4, 4], [1, 1], [2, 2]], np.int64),
        budgets=np.array([9, 9], np.int64),
        limits=(None, None),
    )
    chain_of = labels.chains(pairs)
    assert chain_of[0] == chain_of[1] == chain_of[2] >= 0
    assert chain_of[3] == -1  # worth more at home: not interchangeable
    assert chain_of[4] not in (-1, chain_of[0])  # lighter, but may not go where the others may


@given(problems(), st.floats(0, 1))
def test_pegging_never_removes_a_pair_of_a_better_plan(
    problem: PlacementProblem, share: float
) -> None:
    packed = pack(problem)
    best = best_value(problem, packed)
    pegged = peg(packed.pairs, some_prices(packed, share), best - 1, meter())
    answer = labels.search(ask(packed, best - 1, 0.0), 10**6, meter())
    assert pegged.bound >= best
    if answer.backend_of is not None:
        placed = (answer.backend_of >= 0).nonzero()[0]
        assert pegged.open_pairs[placed, answer.backend_of[placed]].all()


@given(problems(), st.floats(0, 1))
def test_completion_bounds_what_any_rest_adds(problem: PlacementProblem, share: float) -> None:
    """From full budgets, and after the first session took its place."""
    packed = pack(problem)
    pairs, prices = packed.pairs, some_prices(packed, share)
    if not len(pairs.values):
        return
    seat_prices = np.zeros(problem.num_backends, np.int64)
    completion = Completion(pairs, prices, seat_prices, meter())
    whole = completion.parts(0, pairs.budgets[None, :]).sum() + completion.prices_after[0]
    assert whole >= best_value(problem, packed)
    rest = Pairs(pairs.values[1:], pairs.weights[1:], pairs.budgets, pairs.limits)
    for b in range(problem.num_backends):
        if pairs.values[0, b] < 0:
            continue
        left = pairs.budgets.copy()
        left[b] -= pairs.weights[0, b]
        bound = completion.parts(1, left[None, :]).sum() + completion.prices_after[1]
        bounding = labels.Bounding(rest._replace(budgets=left), prices[1:] * 0, 0)
        values = np.where(rest.weights <= left, rest.values, -1)
        bounding = bounding._replace(pairs=bounding.pairs._replace(values=values))
        answer = labels.search(labels.Question(values, 0, (bounding,)), 10**6, meter())
        if answer.backend_of is not None:
            assert bound >= rest.value_of(answer.backend_of)


@given(problems())
def test_quick_bounds_are_bounds(problem: PlacementProblem) -> None:
    packed = pack(problem)
    best = best_value(problem, packed)
    assert best_pairs(packed.pairs) >= best
    assert surrogate(packed)[0] >= best
