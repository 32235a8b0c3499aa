"""Plans as records for people: who competed, who was chosen, and why the others were not."""

from collections.abc import Collection

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.plans import Candidate, Quality
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.placement import Objective, PlacementProblem, Plan
from tao_coordinator.scheduling.policy import Assignment


def candidates(
    turns: Collection[Turn],
    backends: Collection[Backend],
    problem: PlacementProblem,
    found: list[Assignment],
    plan: Plan | None,
    why_chosen_waits: str,
    now_s: float,
    state: State,
) -> tuple[Candidate, ...]:
    """Everybody who competed, with the answer to "why not?".

    Args:
        turns: n of them, in the problem's order.
        backends: m of them.
        problem: with the budgets before anybody was placed.
        found: who goes.
        plan: `None`: there was none.
        why_chosen_waits: what kept those waiting that the plan had chosen; everybody, if there was
            none.
        now_s: monotonic seconds.
        state: as of now.
    """
    homes = {a.turn.request_id: a.backend.backend_id for a in found}
    names = [b.backend_id for b in backends]
    fits = problem.eligible & (problem.weights <= problem.budgets[None, :])
    served = set(problem.eligible.nonzero()[0].tolist())
    roomy = set(fits.nonzero()[0].tolist())
    smallest = problem.weights.min(axis=1, initial=1 << 60).tolist()
    credit = problem.credits.max(axis=1, initial=0).tolist()
    chosen = set[int]() if plan is None else set((plan.backend_of >= 0).nonzero()[0].tolist())
    bucket = state.parameters.credit_bucket_tokens
    rows: list[Candidate] = []
    for i, turn in enumerate(turns):
        home = homes.get(turn.request_id)
        if home is not None:
            why = "chosen"
        elif i not in served:
            why = "no_backend"
        elif plan is None or i in chosen:
            why = why_chosen_waits
        else:
            why = "outvalued" if i in roomy else "no_room"
        rows.append(
            Candidate(
                request_id=turn.request_id,
                session_id=turn.session.key.session_id,
                agent=turn.session.key.agent,
                hold_s=now_s - turn.arrived_s,
                is_overdue=bool(problem.classes[i]),
                need_tokens=int(
                    problem.weights[i, names.index(home)] if home in names else smallest[i]
                ),
                credit_tokens=int(credit[i]) * bucket,
                backend_id=home,
                why=why,
            )
        )
    return tuple(rows)


def quality(plan: Plan) -> Quality:
    """The plan's objective and certificate as plain values."""
    proved = Objective._fields[: plan.certificate.num_proved]
    return Quality(
        objective=plan.objective._asdict(),
        proved=tuple(proved),
        gap=plan.certificate.gap,
        rung=plan.rung.name.lower(),
        work=plan.work,
        solve_s=plan.elapsed_s,
    )
