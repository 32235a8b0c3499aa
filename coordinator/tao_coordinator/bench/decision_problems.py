"""Placement problems to measure with: families of random instances, each stressing one thing.

The common ground (`base`): prompts are lognormal (median 20k tokens, 2k-120k), three in ten
sessions are ready, three in ten are new (no credit anywhere), the others have credit on one
backend, a few on two or three, aged exponentially. Backends hold 300k tokens and are 80-95 % full,
or empty.
Every instance is a function of (family, seed, sessions, backends).
"""

from dataclasses import replace
from typing import Final

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem, SparsePlacementProblem
from tao_coordinator.scheduling.placement.problem import Bool, Int64

CAPACITY_TOKENS: Final = 300_000
"""KV pool of one backend."""

FAMILIES: Final = {
    "base": "the common ground",
    "equalw": "all sessions weigh the same",
    "half": "two sessions just do not fit together",
    "hot": "all credit on one backend",
    "multi3": "credit on up to four backends",
    "allnew": "no credit at all",
    "ktied": "all credits equal",
    "giant": "one session of about a whole residual budget",
    "card": "session limits of 0-3",
    "cap0": "half of the backends have no room",
    "inelig": "two in five pairs not eligible",
    "aged": "15 % overdue sessions, of rank 1 or 2",
    "t_eq_w": "weight equals tokens",
    "prefix": "weights differ by backend: shared prefixes, cached on some",
    "product": "as the policy asks: credit in buckets, all ready, some overdue, limits",
}
"""The first thirteen are the placement study's."""


def dense(
    family: str, seed: int, num_sessions: int, num_backends: int, *, is_empty: bool = False
) -> PlacementProblem:
    """One instance with full arrays.

    Args:
        family: one of `FAMILIES`.
        seed: any.
        num_sessions: n >= 1.
        num_backends: m >= 1.
        is_empty: backends without load instead of 80-95 % full.
    """
    draw = np.random.default_rng([sorted(FAMILIES).index(family), seed])
    n, m = num_sessions, num_backends
    weights = _prompts(draw, n)
    budgets = np.full(m, CAPACITY_TOKENS, np.int64)
    if not is_empty:
        budgets = (
            CAPACITY_TOKENS * (1 - draw.uniform(0.8, 0.95)) * draw.uniform(0.5, 1.5, m)
        ).astype(np.int64)
    if family == "equalw":
        weights[:] = 20_000
    if family == "half":
        weights = np.maximum(int(np.median(budgets)) // 2 + draw.integers(1, 800, n), 1_000)
    if family == "giant":
        weights[draw.integers(n)] = max(2_000, int(budgets.max() * draw.uniform(0.85, 1.1)))
    tokens = weights if family == "t_eq_w" else (weights * draw.uniform(0.9, 1, n)).astype(np.int64)
    problem = PlacementProblem(
        weights=weights[:, None].repeat(m, axis=1),
        budgets=budgets,
        classes=np.zeros(n, np.int64),
        credits=_credits(draw, family, tokens, m),
        ready=(draw.random(n) < 0.3).astype(np.int64),
        tokens=tokens,
        eligible=np.ones((n, m), bool),
    )
    return _constrain(draw, family, problem)


def _prompts(draw: np.random.Generator, num_sessions: int) -> Int64:
    tokens = draw.lognormal(np.log(20_000), 0.7, num_sessions)
    return np.clip(tokens, 2_000, 120_000).astype(np.int64)


def _integers(draw: np.random.Generator, low: int, high: int, size: int) -> Int64:
    return draw.integers(low, high, size, dtype=np.int64)


def _chance(draw: np.random.Generator, share: float, *shape: int) -> Bool:
    return np.asarray(draw.random(shape) < share, bool)


def _aged_credit(draw: np.random.Generator, tokens: Int64) -> Int64:
    share = draw.random(len(tokens)) * 2.0 ** -draw.exponential(1, len(tokens))
    return (tokens * share).astype(np.int64)


def _credits(draw: np.random.Generator, family: str, tokens: Int64, num_backends: int) -> Int64:
    credits = np.zeros((len(tokens), num_backends), np.int64)
    if family == "allnew":
        return credits
    old = (draw.random(len(tokens)) >= 0.3).nonzero()[0]
    if family == "hot":
        credits[old, 0] = _aged_credit(draw, tokens[old])
        return credits
    shares = (1.0, 1.0, 1.0, 1.0) if family == "multi3" else (1.0, 0.2, 0.08)
    for share in shares:
        some = old[draw.random(len(old)) < share]
        where = _integers(draw, 0, num_backends, len(some))
        credits[some, where] = _aged_credit(draw, tokens[some])
    if family == "ktied":
        credits[credits > 0] = 5_000
    return credits


def _constrain(
    draw: np.random.Generator, family: str, problem: PlacementProblem
) -> PlacementProblem:
    n, m = problem.weights.shape
    if family == "card":
        return replace(problem, session_limits=_integers(draw, 0, 4, m))
    if family == "cap0":
        return replace(problem, budgets=np.where(_chance(draw, 0.5, m), 0, problem.budgets))
    if family == "inelig":
        return replace(problem, eligible=_chance(draw, 0.6, n, m))
    if family == "aged":
        ranks = _integers(draw, 1, 3, n)
        return replace(problem, classes=np.where(_chance(draw, 0.15, n), ranks, 0))
    if family == "prefix":
        shared = _integers(draw, 0, 6_000, m) * _chance(draw, 0.6, m)
        return replace(problem, weights=np.maximum(0, problem.weights - shared) + 500)
    if family == "product":
        return replace(
            problem,
            credits=problem.credits // 2_048,
            ready=np.ones(n, np.int64),
            classes=_chance(draw, 0.05, n).astype(np.int64),
            session_limits=_integers(draw, 1, 9, m),
        )
    return problem


def sparse(
    seed: int,
    num_sessions: int,
    num_backends: int,
    *,
    is_empty: bool = False,
    new_share: float = 0.3,
    home_shares: tuple[float, ...] = (1.0, 0.2, 0.08),
    overdue_share: float = 0.0,
    sessions_per_backend_max: int | None = None,
) -> SparsePlacementProblem:
    """One large instance.

    Args:
        seed: any.
        num_sessions: n.
        num_backends: m.
        is_empty: backends without load instead of 80-95 % full.
        new_share: sessions without credit.
        home_shares: share of the others with a first, second, third home.
        overdue_share: sessions of rank 1.
        sessions_per_backend_max: limit per backend is drawn from 1 to this; None: no limits.
    """
    draw = np.random.default_rng([99, seed])
    n, m = num_sessions, num_backends
    weights = _prompts(draw, n)
    budgets = np.full(m, CAPACITY_TOKENS, np.int64)
    if not is_empty:
        budgets = (CAPACITY_TOKENS * (1 - draw.uniform(0.8, 0.95, m))).astype(np.int64)
    tokens = (weights * draw.uniform(0.9, 1, n)).astype(np.int64)
    old = (draw.random(n) >= new_share).nonzero()[0]
    homes = [old[draw.random(len(old)) < share] for share in home_shares]
    sessions = np.concatenate(homes) if homes else np.zeros(0, np.int64)
    backends = _integers(draw, 0, m, len(sessions))
    _, first = np.unique(sessions * m + backends, return_index=True)
    sessions, backends = sessions[first], backends[first]
    credits = _aged_credit(draw, tokens[sessions])
    held = credits > 0
    limits = None
    if sessions_per_backend_max is not None:
        limits = _integers(draw, 1, sessions_per_backend_max + 1, m)
    return SparsePlacementProblem(
        weights=weights[:, None],
        eligible=np.ones((n, 1), bool),
        kind_of=np.zeros(m, np.int64),
        budgets=budgets,
        classes=(draw.random(n) < overdue_share).astype(np.int64),
        ready=(draw.random(n) < 0.3).astype(np.int64),
        tokens=tokens,
        credit_sessions=sessions[held],
        credit_backends=backends[held],
        credits=credits[held],
        session_limits=limits,
    )
