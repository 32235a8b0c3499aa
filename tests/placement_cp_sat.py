"""The optimum of a placement problem by CP-SAT (ortools), one coordinate after the other."""

import time
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem


class Reference(NamedTuple):
    """Sums as far as they were reached; proved only if `is_proved`."""

    sums: tuple[int, ...]
    is_proved: bool
    elapsed_s: float


def solve(problem: PlacementProblem, limit_s: float) -> Reference:
    """Maximise coordinate by coordinate, fixing what is reached; one thread."""
    # By name: the types are checked where ortools is not installed, too.
    cp_model: Any = import_module("ortools.sat.python.cp_model")
    start_s = time.perf_counter()
    fits = problem.eligible & (problem.weights <= problem.budgets[None, :])
    sessions, backends = (index.tolist() for index in fits.nonzero())
    if not sessions:
        return Reference((0,) * 5, True, 0.0)
    model: Any = cp_model.CpModel()
    pairs: list[Any] = [model.new_bool_var("") for _ in sessions]
    for i in set(sessions):
        model.add_at_most_one(x for x, s in zip(pairs, sessions, strict=True) if s == i)
    for b in set(backends):
        mine = [(x, s) for x, s, on in zip(pairs, sessions, backends, strict=True) if on == b]
        load = sum(int(problem.weights[s, b]) * x for x, s in mine)
        model.add(load <= int(problem.budgets[b]))
        if problem.session_limits is not None:
            model.add(sum(x for x, _ in mine) <= int(problem.session_limits[b]))
    coefficients = [
        problem.classes[sessions],
        problem.credits[sessions, backends],
        problem.ready[sessions],
        problem.tokens[sessions],
        np.ones(len(sessions), np.int64),
    ]
    reached: list[int] = []
    for coefficient in coefficients:
        if not coefficient.any():
            reached.append(0)
            continue
        goal = sum(int(c) * x for c, x in zip(coefficient, pairs, strict=True))
        model.maximize(goal)
        solver: Any = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        left_s = limit_s - (time.perf_counter() - start_s)
        solver.parameters.max_time_in_seconds = max(0.05, left_s)
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Reference(tuple(reached), False, time.perf_counter() - start_s)
        reached.append(round(solver.objective_value))
        if status != cp_model.OPTIMAL:
            return Reference(tuple(reached), False, time.perf_counter() - start_s)
        model.add(goal >= reached[-1])
        model.clear_hints()
        for x in pairs:
            model.add_hint(x, solver.value(x))
    return Reference(tuple(reached), True, time.perf_counter() - start_s)
