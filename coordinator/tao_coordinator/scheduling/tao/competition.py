"""Held started sessions and backends as one placement problem.

Vectorised: of a thousand sessions on a hundred backends the loop must not ask a hundred thousand
questions. A started session has credit on its last backend only, so credit costs one question each.
"""

from collections.abc import Collection, Sequence

import numpy as np

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.problem import Bool, Int64
from tao_coordinator.scheduling.tao.room import Room

_EVERYTHING = 1 << 40
"""Tokens a session shares that was told nothing else: all that the backend is known to share."""


def build(
    state: State,
    turns: Sequence[Turn],
    backends: Sequence[Backend],
    room: Room,
    late: Collection[str],
) -> PlacementProblem:
    """The problem of these turns on these backends, as of now.

    Args:
        state: as of now.
        turns: held turns of started sessions; n of them.
        backends: m of them; those not usable any more are eligible for nobody.
        room: what is left of the budgets.
        late: request ids of overdue turns, which lead the objective.
    """
    inputs = np.array([t.input_tokens for t in turns], np.int64)
    return PlacementProblem(
        weights=_weights(state, turns, backends, inputs),
        budgets=np.array([max(0, room.left.get(b.backend_id, 0)) for b in backends], np.int64),
        classes=np.array([t.request_id in late for t in turns], np.int64),
        credits=_credits(state, turns, backends),
        ready=np.ones(len(turns), np.int64),  # a held turn is here: its session is ready
        tokens=inputs,
        eligible=_eligible(state, turns, backends),
    )


def _weights(
    state: State, turns: Sequence[Turn], backends: Sequence[Backend], inputs: Int64
) -> Int64:
    """[n, m] need and growth; the same as `State.need_tokens` for each pair."""
    told = np.array(
        [
            _EVERYTHING if s is None else s
            for s in (turn.session.shared_prefix_tokens for turn in turns)
        ],
        np.int64,
    )
    learned = np.array([b.shared_prefix.tokens for b in backends], np.int64)
    outputs = np.array([t.output_tokens for t in turns], np.int64)
    shared = np.minimum(told[:, None], learned[None, :])
    private = np.maximum(0, inputs[:, None] - shared)
    beside = state.growth_tokens()
    growth = np.array([0 if b.tier else beside for b in backends], np.int64)
    return private + outputs[:, None] + growth[None, :]


def _credits(state: State, turns: Sequence[Turn], backends: Sequence[Backend]) -> Int64:
    """[n, m] buckets of tokens."""
    bucket = state.parameters.credit_bucket_tokens
    index = {b.backend_id: column for column, b in enumerate(backends)}
    credits = np.zeros((len(turns), len(backends)), np.int64)
    for row, turn in enumerate(turns):
        column = index.get(turn.session.last_backend_id or "")
        if column is not None:
            credits[row, column] = state.resident_tokens(turn.session, backends[column]) // bucket
    return credits


def _eligible(state: State, turns: Sequence[Turn], backends: Sequence[Backend]) -> Bool:
    """[n, m] as `State.eligible_for`; whether a prompt fits is the budgets' business."""
    is_any_in_doubt = any(b.failures for b in backends)
    live = [state.backends.get(b.backend_id) is b and b.usable for b in backends]
    by_model: dict[str, Bool] = {}
    rows: list[Bool] = []
    for turn in turns:
        session = turn.session
        model = session.key.model
        row = by_model.get(model)
        if row is None:
            row = by_model[model] = np.array(
                [ok and b.serves(model) for ok, b in zip(live, backends, strict=True)], bool
            )
        if session.lease_ids and session.seat is not None:
            home = np.array([b.backend_id == session.seat.backend_id for b in backends], bool)
            row = row & home if (row & home).any() else row
        if is_any_in_doubt:
            preferred = {b.backend_id for b in state.eligible_for(turn)}
            row = row & np.array([b.backend_id in preferred for b in backends], bool)
        rows.append(row)
    return np.array(rows, bool).reshape(len(turns), len(backends))
