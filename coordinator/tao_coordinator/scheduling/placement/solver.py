"""The one entry: a problem and an effort in, a plan out.

Few backends: `ladder` on full arrays. Many: `sparse.ladder` on pairs with credit, whose plan and
bounds `ladder` then takes up, unless the problem is too large for full arrays or its values for one
int64.
"""

import numpy as np

from tao_coordinator.scheduling.placement import ladder
from tao_coordinator.scheduling.placement.effort import FULL, Effort, Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, pack
from tao_coordinator.scheduling.placement.plan import Certificate, Plan, Rung
from tao_coordinator.scheduling.placement.problem import (
    AnyPlacementProblem,
    Int64,
    Objective,
    PlacementProblem,
)
from tao_coordinator.scheduling.placement.sparse import instance as sparse_instance
from tao_coordinator.scheduling.placement.sparse import ladder as sparse_ladder

DENSE_PAIRS_MAX = 100_000
"""Pairs of session and backend up to which full arrays are searched."""
SPARSE_BACKENDS_MIN = 12
"""Backends from which the sparse ladder goes first."""


def solve(problem: AnyPlacementProblem, effort: Effort = FULL) -> Plan:
    """Place sessions as well as the effort allows; deterministic unless a clock cuts it short.

    Raises:
        OverflowError: values so large that even the sums on one backend exceed 61 bits.
    """
    meter = Meter(effort)
    if isinstance(problem, PlacementProblem) and not _anything_fits(problem):
        meter.spend(20 + problem.num_sessions * problem.num_backends // 100)
        nothing = Objective(0, 0, 0, 0, 0)
        nobody = np.full(problem.num_sessions, -1, np.int64)
        certificate = Certificate.of(nothing, nothing)
        return _plan(nobody, nothing, certificate, Rung.TRIVIAL, effort, meter)
    packed = None
    if problem.num_sessions * problem.num_backends <= DENSE_PAIRS_MAX:
        packed = _pack(problem)
        meter.spend(200 + problem.num_sessions * problem.num_backends // 20)
    if packed is not None and problem.num_backends < SPARSE_BACKENDS_MIN:
        incumbent = ladder.climb(packed, effort, meter)
        return _plan(
            incumbent.backend_of,
            incumbent.objective,
            incumbent.certificate(),
            incumbent.rung,
            effort,
            meter,
        )
    outcome = sparse_ladder.climb(sparse_instance.read(problem), effort, meter)
    backend_of, objective = outcome.plan.backend_of, outcome.plan.objective
    certificate, rung = outcome.certificate, outcome.rung
    if packed is not None and not (certificate.is_optimal or meter.exhausted):
        incumbent = Incumbent(packed)
        incumbent.offer(backend_of, rung)
        incumbent.limit(packed.bound_value(outcome.bound))
        ladder.climb_from(incumbent, effort, meter)
        backend_of, objective = incumbent.backend_of, incumbent.objective
        certificate, rung = incumbent.certificate(), incumbent.rung
    return _plan(backend_of, objective, certificate, rung, effort, meter)


def _anything_fits(problem: PlacementProblem) -> bool:
    """Most plans of a full fleet are asked for in vain; that is seen at a glance."""
    fits = problem.eligible & (problem.weights <= problem.budgets)
    if problem.session_limits is not None:
        fits &= problem.session_limits > 0
    return bool(fits.any())


def _pack(problem: AnyPlacementProblem) -> PackedProblem | None:
    if not isinstance(problem, PlacementProblem):
        problem = sparse_instance.densify(problem)
    try:
        return pack(problem)
    except OverflowError:
        return None


def _plan(
    backend_of: Int64,
    objective: Objective,
    certificate: Certificate,
    rung: Rung,
    effort: Effort,
    meter: Meter,
) -> Plan:
    return Plan(
        backend_of=backend_of,
        objective=objective,
        certificate=certificate,
        rung=rung,
        work=meter.spent,
        elapsed_s=None if effort.elapsed_s is None else effort.elapsed_s(),
    )
