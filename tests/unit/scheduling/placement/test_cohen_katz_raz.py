"""One Cohen-Katz-Raz pass: feasible, and at least half the optimum in lexicographic order."""

import numpy as np
from hypothesis import given
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Effort, PlacementProblem
from tao_coordinator.scheduling.placement.cohen_katz_raz import improve, place
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import pack
from tao_coordinator.scheduling.placement.plan import check_feasible


def meter() -> Meter:
    return Meter(Effort(work=10**9))


@given(problems())
def test_one_pass_is_feasible_and_at_least_half_the_optimum(problem: PlacementProblem) -> None:
    packed = pack(problem)
    backend_of = place(packed.pairs, meter(), num_passes=1)
    check_feasible(problem, backend_of)
    found = packed.objective_of(backend_of)
    assert tuple(2 * coordinate for coordinate in found) >= optimum(problem)


@given(problems())
def test_further_passes_never_lose(problem: PlacementProblem) -> None:
    packed = pack(problem)
    before: tuple[int, ...] = ()
    for num_passes in range(1, 5):
        backend_of = place(packed.pairs, meter(), num_passes=num_passes)
        check_feasible(problem, backend_of)
        after = packed.objective_of(backend_of)
        assert after >= before
        before = after


@given(problems())
def test_backends_skipped_as_unchanged_would_not_have_changed(problem: PlacementProblem) -> None:
    """Passes skip backends that cannot have a new answer: starting again finds nothing."""
    packed = pack(problem)
    settled = place(packed.pairs, meter(), num_passes=50)
    again = improve(packed.pairs, settled, meter(), num_passes=1)
    assert packed.objective_of(again) == packed.objective_of(settled)


def test_resident_session_stays_home_and_the_other_goes_elsewhere() -> None:
    problem = PlacementProblem(
        weights=np.array([[60, 60], [60, 60]], np.int64),
        budgets=np.array([100, 100], np.int64),
        classes=np.zeros(2, np.int64),
        credits=np.array([[0, 9], [0, 0]], np.int64),
        ready=np.ones(2, np.int64),
        tokens=np.array([60, 60], np.int64),
        eligible=np.ones((2, 2), bool),
    )
    assert place(pack(problem).pairs, meter(), 3).tolist() == [1, 0]


def test_exhausted_meter_still_gets_one_whole_pass() -> None:
    problem = PlacementProblem(
        weights=np.full((4, 3), 10, np.int64),
        budgets=np.array([10, 10, 20], np.int64),
        classes=np.zeros(4, np.int64),
        credits=np.zeros((4, 3), np.int64),
        ready=np.ones(4, np.int64),
        tokens=np.full(4, 10, np.int64),
        eligible=np.ones((4, 3), bool),
    )
    backend_of = place(pack(problem).pairs, Meter(Effort(work=0)), 3)
    assert (backend_of >= 0).all()
