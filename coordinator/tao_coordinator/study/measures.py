"""One run reduced to numbers: what a user waits for, what the fleet delivers, what it costs.

Times are seconds unless the name says otherwise. `ttft` counts from the moment the turn was asked
for, so holds, refusals and the engine's queue are all in it. `tool_to_token` is the same without
first turns: from a tool's end to the first token.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tao_coordinator.simulation.fleet import FleetSettings
from tao_coordinator.simulation.run_record import Floats, Moment, RunRecord

MISSING: Final = float("nan")
LOADED_SHARE_MIN: Final = 0.2
"""Where the last session starts before this share of the run, half the run counts as loaded."""
TPOT_TOKENS_MIN: Final = 16
"""A shorter reply says nothing about the time per output token."""


def measure(
    record: RunRecord, settings: FleetSettings, warm_s: float = 0.0, *, is_window: bool = False
) -> dict[str, float]:
    """All measures of one run by name.

    Args:
        record: of the run.
        settings: with which it was made.
        warm_s: rates under load (`output_tokens_per_s`, `hit_rate_loaded`, `working_set`) begin
            here: until then contexts are still those of beginners.
        is_window: only turns asked for from then on count at all, and the run was cut on purpose.
    """
    if is_window:
        turns = [row for row in record.turns if row.asked_s >= warm_s]
        record = replace(record, turns=turns, num_unfinished=0)
    if not record.turns or not (record.sessions or is_window):
        return {"unfinished": float(record.num_unfinished), "sessions": 0.0}
    makespan_s = record.end_s if is_window else max(row.ended_s for row in record.sessions)
    loaded_s = record.end_s if is_window else record.last_start_s
    if loaded_s < LOADED_SHARE_MIN * makespan_s:
        loaded_s = makespan_s / 2
    finished = record.column("finished_s")
    loaded_s = max(loaded_s, warm_s + 1.0)
    loaded = (finished <= loaded_s) & (finished >= warm_s)
    span_s = loaded_s - warm_s
    output, prompt = record.column("output_tokens"), record.column("input_tokens")
    cached, reusable = record.column("cached_tokens"), record.column("reusable_tokens")
    moved, later = record.column("moved"), record.column("turn") > 0
    found = {
        **_latency(record),
        "output_tokens_per_s": float(output[loaded].sum()) / span_s,
        "total_tokens_per_s": float((output + prompt)[loaded].sum()) / span_s,
        "output_tokens_per_s_all": float(output.sum()) / makespan_s,
        "hit_rate": float(cached.sum() / prompt.sum()),
        "hit_rate_loaded": _ratio(cached[loaded].sum(), prompt[loaded].sum()),
        "lost_reuse": _ratio(np.maximum(0.0, reusable - cached).sum(), reusable.sum()),
        "makespan_s": makespan_s,
        "moved_ratio": _ratio(moved[later].sum(), later.sum()),
        "credit_error": _credit_error(record),
        "busy": record.busy_s / (makespan_s * len(settings.backends)),
        "working_set": _working_set(record, settings, warm_s, loaded_s),
        "kv_peak": max((moment.kv_used for moment in record.timeline), default=MISSING),
        "preemptions": float(record.preemptions),
        "refused": float(record.num_refused),
        "errors": float(record.num_errors),
        "failed": float(sum(row.failed for row in record.sessions)),
        "unfinished": float(record.num_unfinished),
        "sessions": float(len(record.sessions)),
        "turns": float(len(record.turns)),
        "readiness_brier": record.readiness.get("brier", MISSING),
        "seats_released": _ratio(record.counters.get("seats_released", 0), len(record.sessions)),
        **record.certificates,
    }
    return found | _decisions(record, makespan_s)


def hit_rate_middle(timeline: Sequence[Sequence[float]]) -> float:
    """Hits over prompt tokens in the middle third of a run's own time, 0..1.

    Args:
        timeline: fields of `Moment`, in order of time; not a number where they tell of no prompt.
    """
    if not timeline:
        return MISSING
    end_s = timeline[-1][0]
    middle = [moment for moment in timeline if end_s <= 3.0 * moment[0] <= 2.0 * end_s]
    if not middle:
        return MISSING
    prompt, cached = (Moment._fields.index(name) for name in ("prompt_tokens", "cached_tokens"))
    first, last = middle[0], middle[-1]
    asked = last[prompt] - first[prompt]
    return (last[cached] - first[cached]) / asked if asked else MISSING


def _decisions(record: RunRecord, makespan_s: float) -> dict[str, float]:
    """What deciding took, and how it went."""
    found: dict[str, float] = {}
    plans, fallbacks = (record.counters.get(name) for name in ("num_plans", "num_fallbacks"))
    if plans and fallbacks is not None:
        found["fallback_share"] = fallbacks / plans
        solved = plans - fallbacks
        found["plan_states_mean"] = _ratio(record.counters["num_states"], solved)
    if record.decision_s:
        cost = np.array(record.decision_s)
        found["decision_ms_mean"] = float(cost.mean()) * 1e3
        found["decision_ms_p50"] = float(np.percentile(cost, 50)) * 1e3
        found["decision_ms_p99"] = float(np.percentile(cost, 99)) * 1e3
        found["decision_ms_max"] = float(cost.max()) * 1e3
        found["decision_share"] = float(cost.sum()) / makespan_s
    return found


def _latency(record: RunRecord) -> dict[str, float]:
    asked, first = record.column("asked_s"), record.column("first_token_s")
    ttft, hold = first - asked, record.column("granted_s") - asked
    later = record.column("turn") > 0
    tasks = record.session_column("ended_s") - record.session_column("started_s")
    output = record.column("output_tokens")
    decode = record.column("finished_s") - first
    long_enough = output >= TPOT_TOKENS_MIN
    per_token = decode[long_enough] / (output[long_enough] - 1.0)
    return {
        **_spread("task_s", tasks),
        **_spread("ttft_s", ttft),
        **_spread("tool_to_token_s", ttft[later]),
        "tpot_ms_p50": _percentile(per_token, 50) * 1e3,
        "tpot_ms_p99": _percentile(per_token, 99) * 1e3,
        "hold_s_mean": float(hold.mean()),
        "hold_s_max": float(hold.max()),
        "hold_started_s_max": float(hold[later].max()) if later.any() else 0.0,
        "goodput_5s": float((ttft <= 5.0).mean()),
        "goodput_30s": float((ttft <= 30.0).mean()),
        **_where_time_went(record),
    }


def _where_time_went(record: RunRecord) -> dict[str, float]:
    """Seconds per session in each phase, and the part of prefill that was done before."""
    num = max(1, len(record.sessions))
    admitted, granted = record.column("admitted_s"), record.column("granted_s")
    first, prompt = record.column("first_token_s"), record.column("input_tokens")
    prefill = first - admitted
    cached, reusable = record.column("cached_tokens"), record.column("reusable_tokens")
    again = np.maximum(0.0, reusable - cached) / np.maximum(1.0, prompt - cached)
    prefill_again = float((prefill * np.minimum(1.0, again)).sum())
    return {
        "per_session_hold_s": float((granted - record.column("asked_s")).sum()) / num,
        "per_session_queue_s": float((admitted - granted).sum()) / num,
        "per_session_prefill_again_s": prefill_again / num,
        "per_session_prefill_s": (float(prefill.sum()) - prefill_again) / num,
        "per_session_decode_s": float((record.column("finished_s") - first).sum()) / num,
        "per_session_tools_s": float(record.session_column("tools_s").sum()) / num,
    }


def _working_set(record: RunRecord, settings: FleetSettings, from_s: float, to_s: float) -> float:
    """Mean over time of all live contexts over all pools: what the load really was."""
    pools = sum(spec.pool_tokens for spec in settings.backends)
    seen = [m.context_tokens for m in record.timeline if from_s <= m.time_s <= to_s]
    return sum(seen) / (len(seen) * pools) if seen else MISSING


def _spread(name: str, values: Floats) -> dict[str, float]:
    return {
        f"{name}_mean": float(values.mean()) if len(values) else MISSING,
        f"{name}_p50": _percentile(values, 50),
        f"{name}_p99": _percentile(values, 99),
    }


def _percentile(values: Floats, percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else MISSING


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _credit_error(record: RunRecord) -> float:
    """Mean absolute difference of predicted and found private cached tokens, over prompts.

    Only turns with history: what a first turn finds is shared and never predicted.
    """
    later = record.column("turn") > 0
    if not later.any():
        return 0.0
    prompt = record.column("input_tokens")[later]
    shared = record.column("shared_tokens")[later]
    found = np.maximum(0.0, record.column("cached_tokens")[later] - shared)
    return float(np.abs(found - record.column("credit_tokens")[later]).sum() / prompt.sum())
