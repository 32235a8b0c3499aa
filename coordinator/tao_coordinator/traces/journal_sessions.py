"""Sessions of a coordinator's journal: calls by their wall times, tool calls where they belong.

A coordinator hears of tools over other connections than of model calls, a few milliseconds early or
late, so a tool call is taken to lie before that model call whose middle comes next after its start.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from tao_coordinator.traces.agent_rows import CallRow, EndRow, Key, ToolRow
from tao_coordinator.traces.records import SessionRecord, ToolRecord, TurnRecord

HARNESS: Final = "journal"

_Owner = tuple[str, str, int]
"""Session id, agent, and how often they had ended before."""
_Runs = dict[_Owner, dict[str, list[CallRow]]]
"""Calls between two ends of a session, by model."""


def is_timed(row: CallRow) -> bool:
    """Whether a row has the times that a journal gives."""
    return row.hold_s is not None and row.timestamp_s is not None


def put_together(
    calls: Mapping[Key, Sequence[CallRow]], tools: Iterable[ToolRow], ends: Iterable[EndRow]
) -> list[SessionRecord]:
    """Every session with its turns and tool calls, by arrival.

    Args:
        calls: by what has one growing prompt; each `is_timed`.
        tools: of any session; those after a session's last call are left out.
        ends: split what one session id did.
    """
    ended_s = _ends_by_session(ends)
    runs: _Runs = defaultdict(lambda: defaultdict(list))
    for key, rows in calls.items():
        for row in rows:
            assert row.timestamp_s is not None
            run = _run_of(ended_s, key.session_id, key.agent, row.timestamp_s)
            runs[key.session_id, key.agent, run][key.model].append(row)
    busiest: dict[tuple[str, int], _Owner] = {}
    for owner in sorted(runs, key=lambda owner: sum(map(len, runs[owner].values()))):
        session_id, agent, run = owner
        if agent:
            busiest[session_id, run] = owner
    busiest.update({(owner[0], owner[2]): owner for owner in runs if not owner[1]})
    loose: dict[_Owner, list[ToolRecord]] = defaultdict(list)
    for row in tools:
        for tool in row.tools:
            run = _run_of(ended_s, row.session_id, row.agent, tool.start_s)
            owner = (row.session_id, row.agent, run)
            # Not every emitter of tool calls knows which agent makes them.
            loose[owner if owner in runs else busiest.get((row.session_id, run), owner)].append(
                tool
            )
    found: list[SessionRecord] = []
    for owner, by_model in runs.items():
        main = max(by_model, key=lambda model: len(by_model[model]))
        for model, rows in by_model.items():
            own_tools = loose.get(owner, []) if model == main else []
            found.append(_session(owner, model, rows, own_tools))
    found.sort(key=lambda session: session.arrival_s or 0.0)
    return _named_apart(found)


def _ends_by_session(ends: Iterable[EndRow]) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for end in ends:
        found[end.session_id, end.agent].append(end.ended_s)
    for times_s in found.values():
        times_s.sort()
    return found


def _run_of(
    ended_s: Mapping[tuple[str, str], Sequence[float]], session_id: str, agent: str, at_s: float
) -> int:
    """How often the session, or its agent, had ended before."""
    count = bisect_right(ended_s.get((session_id, ""), ()), at_s)
    if agent:
        count += bisect_right(ended_s.get((session_id, agent), ()), at_s)
    return count


def _session(
    owner: _Owner, model: str, rows: list[CallRow], tools: list[ToolRecord]
) -> SessionRecord:
    session_id, agent, _ = owner
    rows.sort(key=lambda row: row.timestamp_s or 0.0)
    zero_s = rows[0].timestamp_s or 0.0
    arrivals_s = [(row.timestamp_s or 0.0) - zero_s for row in rows]
    ends_s = [
        arrival_s + (row.hold_s or 0.0) + (row.duration_s or 0.0)
        for arrival_s, row in zip(arrivals_s, rows, strict=True)
    ]
    middles = ((a + b) / 2 for a, b in zip(arrivals_s, ends_s, strict=True))
    before = _by_turn(tools, zero_s, list(accumulate(middles, max)))
    turns: list[TurnRecord] = []
    idle_from_s = 0.0
    for row, arrival_s, end_s, calls in zip(rows, arrivals_s, ends_s, before, strict=True):
        waited_for = [tool.end_s for tool in calls if not tool.background]
        gap_s = arrival_s - max([idle_from_s, *waited_for])
        turns.append(
            TurnRecord(
                request_id=row.request_id,
                arrival_s=arrival_s,
                hold_s=row.hold_s or 0.0,
                duration_s=row.duration_s,
                input_tokens=row.input_tokens,
                cached_tokens=row.cached_tokens,
                output_tokens=row.output_tokens,
                tools=calls,
                gap_s=max(0.0, gap_s) if turns else 0.0,
                gap_is_person=row.gap_is_person,
            )
        )
        idle_from_s = max(idle_from_s, end_s)
    parent = rows[0].parent_session_id or (session_id if agent else None)
    return SessionRecord(
        session_id=f"{session_id}/{agent}" if agent else session_id,
        turns=tuple(turns),
        parent_session_id=parent,
        arrival_s=zero_s,
        harness=HARNESS,
        model=model,
    )


def _by_turn(
    tools: Iterable[ToolRecord], zero_s: float, middles_s: Sequence[float]
) -> list[tuple[ToolRecord, ...]]:
    """Tool calls on the session's clock, by the number of the turn that follows them."""
    found: list[list[ToolRecord]] = [[] for _ in middles_s]
    for tool in sorted(tools, key=lambda tool: tool.start_s):
        start_s = tool.start_s - zero_s
        turn = bisect_right(middles_s, start_s)
        if turn < len(found):
            found[turn].append(replace(tool, start_s=max(0.0, start_s)))
    return [tuple(calls) for calls in found]


def _named_apart(sessions: Iterable[SessionRecord]) -> list[SessionRecord]:
    """One session id may have ended and begun again, or use several models."""
    counts: dict[str, int] = {}
    found: list[SessionRecord] = []
    taken: set[str] = set()
    for session in sessions:
        name = session.session_id
        while name in taken:
            counts[session.session_id] = counts.get(session.session_id, 1) + 1
            name = f"{session.session_id}#{counts[session.session_id]}"
        taken.add(name)
        found.append(session if name == session.session_id else replace(session, session_id=name))
    return found
