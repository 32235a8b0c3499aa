"""The placement problem: sessions, backends, budgets, and what a placement is worth.

    lexmax_x  sum_ib (class_i, k_ib, r_i, t_i, 1) x_ib                          (TAO, Eq. 2 and 3)
    sum_b x_ib <= 1                      one backend per session                (Eq. 1)
    sum_i w_ib x_ib <= C_b               token budget of a backend
    sum_i x_ib <= L_b                    session limit of a backend, optional
    x_ib = 0 where not eligible,         x_ib in {0, 1}

| symbol   | field            | unit                                                       |
|----------|------------------|------------------------------------------------------------|
| w_ib     | `weights`        | tokens that session i would take of backend b's budget     |
| C_b      | `budgets`        | tokens left; below 0 nothing fits                          |
| L_b      | `session_limits` | sessions                                                   |
| class_i  | `classes`        | rank, 0 = ordinary, higher = overdue                       |
| k_ib     | `credits`        | cache credit, tokens or buckets of tokens                  |
| r_i      | `ready`          | 1 = wants to run now                                       |
| t_i      | `tokens`         | tokens                                                     |

Values are compared coordinate by coordinate and never blended. All entries are integers, all but
budgets >= 0.

Two forms of the same problem: `PlacementProblem` holds full n x m arrays; `SparsePlacementProblem`
is for many backends, where nearly every session has credit on a few of them at most and backends
come in a few *kinds* (equal weights and eligibility for every session). Both answer the same
questions about pairs, so that a plan can be checked against either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class Objective(NamedTuple):
    """What a plan is worth: sums over placed sessions. Compares lexicographically."""

    classes: int
    credit: int
    ready: int
    tokens: int
    sessions: int


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """n sessions, m backends, in full arrays."""

    weights: Int64  # [n, m] tokens
    budgets: Int64  # [m] tokens
    classes: Int64  # [n]
    credits: Int64  # [n, m]
    ready: Int64  # [n] 0 or 1
    tokens: Int64  # [n]
    eligible: Bool  # [n, m]
    session_limits: Int64 | None = None  # [m]

    def __post_init__(self) -> None:
        """Refuse shapes and signs that no caller means."""
        n, m = len(self.tokens), len(self.budgets)
        _check_shapes({"weights": self.weights, "credits": self.credits}, (n, m))
        _check_shapes({"classes": self.classes, "ready": self.ready, "tokens": self.tokens}, (n,))
        if self.eligible.shape != (n, m):
            raise ValueError(f"eligible has shape {self.eligible.shape}, not {(n, m)}")
        _check_limits(self.session_limits, m)

    @property
    def num_sessions(self) -> int:
        """N."""
        return len(self.tokens)

    @property
    def num_backends(self) -> int:
        """M."""
        return len(self.budgets)

    def only(self, sessions: Sequence[int]) -> "PlacementProblem":
        """The problem of these sessions alone, in this order."""
        rows = np.array(sessions, np.int64)
        return replace(
            self,
            weights=self.weights[rows],
            classes=self.classes[rows],
            credits=self.credits[rows],
            ready=self.ready[rows],
            tokens=self.tokens[rows],
            eligible=self.eligible[rows],
        )

    def pair_weights(self, sessions: Int64, backends: Int64) -> Int64:
        """[p] tokens of these pairs."""
        return self.weights[sessions, backends]

    def pair_credits(self, sessions: Int64, backends: Int64) -> Int64:
        """[p] cache credit of these pairs."""
        return self.credits[sessions, backends]

    def pair_eligible(self, sessions: Int64, backends: Int64) -> Bool:
        """[p] whether these pairs may be chosen."""
        return self.eligible[sessions, backends]


@dataclass(frozen=True, slots=True)
class SparsePlacementProblem:
    """n sessions, m backends of K kinds, and the p pairs that have credit."""

    weights: Int64  # [n, K] tokens on a backend of that kind
    eligible: Bool  # [n, K]
    kind_of: Int64  # [m] kind of each backend
    budgets: Int64  # [m] tokens
    classes: Int64  # [n]
    ready: Int64  # [n] 0 or 1
    tokens: Int64  # [n]
    credit_sessions: Int64  # [p] each pair at most once
    credit_backends: Int64  # [p]
    credits: Int64  # [p]
    session_limits: Int64 | None = None  # [m]

    def __post_init__(self) -> None:
        """Refuse shapes and signs that no caller means."""
        n, m, num_kinds = len(self.tokens), len(self.budgets), self.weights.shape[1]
        _check_shapes({"weights": self.weights}, (n, num_kinds))
        _check_shapes({"kind_of": self.kind_of}, (m,))
        _check_shapes({"classes": self.classes, "ready": self.ready, "tokens": self.tokens}, (n,))
        pairs = {
            "credit_sessions": self.credit_sessions,
            "credit_backends": self.credit_backends,
            "credits": self.credits,
        }
        _check_shapes(pairs, (len(self.credits),))
        if self.eligible.shape != (n, num_kinds):
            raise ValueError(f"eligible has shape {self.eligible.shape}, not {(n, num_kinds)}")
        _check_limits(self.session_limits, m)

    @property
    def num_sessions(self) -> int:
        """N."""
        return len(self.tokens)

    @property
    def num_backends(self) -> int:
        """M."""
        return len(self.budgets)

    def pair_weights(self, sessions: Int64, backends: Int64) -> Int64:
        """[p] tokens of these pairs."""
        return self.weights[sessions, self.kind_of[backends]]

    def pair_credits(self, sessions: Int64, backends: Int64) -> Int64:
        """[p] cache credit of these pairs."""
        keys = self.credit_sessions * self.num_backends + self.credit_backends
        order = keys.argsort()
        wanted = sessions * self.num_backends + backends
        place = np.minimum(keys[order].searchsorted(wanted), max(0, len(keys) - 1))
        if not len(keys):
            return np.zeros(len(sessions), np.int64)
        found = order[place]
        return np.where(keys[found] == wanted, self.credits[found], 0)

    def pair_eligible(self, sessions: Int64, backends: Int64) -> Bool:
        """[p] whether these pairs may be chosen."""
        return self.eligible[sessions, self.kind_of[backends]]


AnyPlacementProblem = PlacementProblem | SparsePlacementProblem


def _check_shapes(arrays: dict[str, Int64], shape: tuple[int, ...]) -> None:
    for name, array in arrays.items():
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        if array.size and int(array.min()) < 0:
            raise ValueError(f"{name} must not be negative")


def _check_limits(session_limits: Int64 | None, num_backends: int) -> None:
    if session_limits is not None:
        _check_shapes({"session_limits": session_limits}, (num_backends,))
