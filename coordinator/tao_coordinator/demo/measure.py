"""From what the children recorded to the figures of one policy.

Two clocks of the same machine are joined: the fleet dates when an agent asked for a turn and when
it got the answer, the backends when a request came, when its first token was out and when it was
done. A turn's time to first token runs from the agent's asking, so a hold and the engine's queue
are both in it. All durations are reported in engine seconds: real seconds times the time scale.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, quantiles

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """Figures of one policy. Times in engine seconds."""

    policy: str
    num_sessions: int
    num_turns: int
    num_failed_sessions: int
    """Sessions that did not end by submitting."""
    task_s_mean: float
    task_s_max: float
    ttft_s_mean: float
    ttft_s_p99: float
    hit_rate: float
    """Prompt tokens found cached over prompt tokens, 0..1."""
    output_tokens_per_s: float
    hold_s_max: float
    """Longest wait for a lease; of a new session, in line, as a rule."""
    hold_started_s_max: float
    """Longest wait of a session that had a cache to lose."""
    makespan_s: float
    pressure_mean: float
    """Sum of live sessions' contexts over the pool of all backends, mean over the run's time."""
    pressure_max: float
    """Its largest value."""
    wall_s: float
    """Real seconds."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def number(record: Record, key: str) -> float:
    """A numeric field; absent or null counts as 0."""
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def summarise(
    policy: str,
    fleet: Iterable[Record],
    backend_requests: Iterable[Record],
    *,
    pool_tokens: int,
    time_scale: float,
    wall_s: float,
) -> PolicyResult:
    """Join the two logs and reduce them.

    Args:
        policy: name for the table.
        fleet: the fleet's records, kinds `turn` and `session`.
        backend_requests: finished requests of all backends.
        pool_tokens: KV pool of all backends together.
        time_scale: engine seconds per real second.
        wall_s: real duration of the whole arm.

    Raises:
        ValueError: no turn was finished, so there is nothing to report.
    """
    turns: list[Record] = []
    sessions: list[Record] = []
    for record in fleet:
        (turns if record.get("kind") == "turn" else sessions).append(record)
    done = [r for r in backend_requests if r.get("outcome") == "completed"]
    ttfts_s = [ttft * time_scale for ttft in first_token_times_s(turns, done)]
    if not ttfts_s or not sessions:
        raise ValueError(f"policy {policy}: no turn reached a backend")
    started = min(number(s, "started_at") for s in sessions)
    ended = max(number(s, "ended_at") for s in sessions)
    makespan_s = (ended - started) * time_scale
    tasks_s = [(number(s, "ended_at") - number(s, "started_at")) * time_scale for s in sessions]
    prompt = sum(number(r, "prompt_tokens") for r in done)
    context_mean, context_max = context_tokens(turns, sessions)
    return PolicyResult(
        policy=policy,
        num_sessions=len(sessions),
        num_turns=len(turns),
        num_failed_sessions=sum(s.get("exit_status") != "Submitted" for s in sessions),
        task_s_mean=fmean(tasks_s),
        task_s_max=max(tasks_s),
        ttft_s_mean=fmean(ttfts_s),
        ttft_s_p99=percentile(ttfts_s, 99),
        hit_rate=sum(number(r, "cached_tokens") for r in done) / max(1.0, prompt),
        output_tokens_per_s=sum(number(r, "output_tokens") for r in done) / makespan_s,
        hold_s_max=max(number(t, "hold_s") for t in turns) * time_scale,
        hold_started_s_max=longest_started_hold_s(turns) * time_scale,
        makespan_s=makespan_s,
        pressure_mean=context_mean / pool_tokens,
        pressure_max=context_max / pool_tokens,
        wall_s=wall_s,
    )


def first_token_times_s(turns: Iterable[Record], requests: Iterable[Record]) -> list[float]:
    """Seconds from an agent's asking to the first token, one per turn that a backend served.

    A backend's request belongs to the turn of its session in whose interval it arrived; a turn that
    was retried inside the agent has several, and counts until the first token of the last.
    """
    by_session: defaultdict[str, list[Record]] = defaultdict(list)
    for request in requests:
        by_session[str(request.get("session_id"))].append(request)
    found: list[float] = []
    for turn in turns:
        asked, answered = number(turn, "asked_at"), number(turn, "answered_at")
        firsts = [
            number(request, "first_token_at")
            for request in by_session[str(turn.get("session_id"))]
            if asked <= number(request, "received_at") <= answered
        ]
        if firsts:
            found.append(max(firsts) - asked)
    return found


def longest_started_hold_s(turns: Iterable[Record]) -> float:
    """Longest hold among turns that were not their session's first."""
    seen: set[str] = set()
    longest_s = 0.0
    for turn in sorted(turns, key=lambda record: number(record, "asked_at")):
        session_id = str(turn.get("session_id"))
        if session_id in seen:
            longest_s = max(longest_s, number(turn, "hold_s"))
        seen.add(session_id)
    return longest_s


def context_tokens(turns: Iterable[Record], sessions: Iterable[Record]) -> tuple[float, int]:
    """Mean over time and maximum of the sum of live sessions' newest contexts."""
    changes: list[tuple[float, str, int]] = []
    for turn in turns:
        tokens = int(number(turn, "input_tokens") + number(turn, "output_tokens"))
        changes.append((number(turn, "answered_at"), str(turn.get("session_id")), tokens))
    changes += [(number(s, "ended_at"), str(s.get("session_id")), 0) for s in sessions]
    # By time alone: a session's end comes after the last turn that was answered with it.
    changes.sort(key=lambda change: change[0])
    live: dict[str, int] = {}
    peak, area = 0, 0.0
    for index, (time_s, session_id, tokens) in enumerate(changes):
        live[session_id] = tokens
        total = sum(live.values())
        peak = max(peak, total)
        if index + 1 < len(changes):
            area += total * (changes[index + 1][0] - time_s)
    span_s = changes[-1][0] - changes[0][0]
    return (area / span_s if span_s > 0 else float(peak)), peak


def percentile(values: list[float], percent: int) -> float:
    """Percentile by linear interpolation; of one value, that value."""
    if len(values) < 2:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]
