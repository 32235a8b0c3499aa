"""Scripts from recorded sessions: what the agents did, to be run again under another policy.

Prompt lengths, reply lengths, tool calls and gaps are taken over; when turns begin is not: the next
turn follows the reply by the recorded tool phase and gap, however long the modelled engine takes.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    ToolRecord,
    Trace,
    TurnRecord,
)

OUTPUT_MEDIAN_TOKENS: Final = 144.0
OUTPUT_SIGMA: Final = 1.08
TURNS_MIN: Final = 3
OUTPUT_TOKENS_MIN: Final = 8
"""Replies whose length the trace does not tell reliably are drawn: log-normal, as published for
Claude Code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReading:
    """How recorded sessions become scripts."""

    turns_min: int = TURNS_MIN
    """Shorter sessions are left out: nothing to schedule."""
    turns_max: int = 60
    """Longer ones are cut."""
    context_tokens_max: int = 200_000
    """A session is cut before the turn that needs more."""
    output_tokens_max: int = 4_000
    tool_s_max: float = 600.0
    gap_s_max: float = 60.0
    """People and overnight pauses are cut down to this."""
    shared_tokens: int = 0
    """System prompt that all sessions have in common; traces do not tell it."""


def scripts_of(trace: Trace, reading: TraceReading, seed: int) -> list[SessionScript]:
    """Every usable session of a trace as a script, in the trace's order.

    Args:
        trace: what was recorded.
        reading: limits.
        seed: for reply lengths that the trace does not tell.

    Raises:
        MalformedTrace: no session can be used.
    """
    chance = random.Random(f"replies/{seed}")
    found: list[SessionScript] = []
    for session in trace.sessions:
        turns = _turns(session, reading, chance)
        if len(turns) >= reading.turns_min:
            found.append(
                SessionScript(
                    session_id=session.session_id,
                    turns=turns,
                    shared_tokens=reading.shared_tokens,
                    family="trace",
                    parent_session_id=session.parent_session_id,
                    arrival_s=session.arrival_s,
                )
            )
    if not found:
        raise MalformedTrace(_why_none(trace, reading))
    return found


def _why_none(trace: Trace, reading: TraceReading) -> str:
    known = [sum(1 for turn in session.turns if turn.input_tokens) for session in trace.sessions]
    needed = f"{reading.turns_min} model calls with known prompt lengths in one session"
    if max(known, default=0) < reading.turns_min:
        found = f"the most in any of {len(known):,} sessions is {max(known, default=0)}"
    else:
        found = f"no session has them within {reading.context_tokens_max:,} tokens of context"
    return f"nothing of the trace can be run: it takes {needed}, and {found}"


def drawn(scripts: Sequence[SessionScript], number: int, seed: int) -> list[SessionScript]:
    """`number` sessions in random order; each comes once before any comes twice."""
    chance = random.Random(f"order/{seed}")
    found: list[SessionScript] = []
    lap = 0
    while len(found) < number:
        order = list(range(len(scripts)))
        chance.shuffle(order)
        for index in order[: number - len(found)]:
            script = scripts[index]
            found.append(script if lap == 0 else script.renamed(f"{script.session_id}#{lap}"))
        lap += 1
    return found


def _turns(
    session: SessionRecord, reading: TraceReading, chance: random.Random
) -> tuple[TurnScript, ...]:
    found: list[TurnScript] = []
    records = [turn for turn in session.turns if turn.input_tokens]
    reliable = session.output_tokens_are_reliable
    previous: TurnRecord | None = None
    for number, record in enumerate(records):
        prompt = max(record.input_tokens or 1, reading.shared_tokens + 1)
        output = record.output_tokens if reliable else None
        if output is None or output < OUTPUT_TOKENS_MIN:
            draw = math.exp(OUTPUT_SIGMA * chance.gauss(0.0, 1.0))
            output = max(OUTPUT_TOKENS_MIN, int(OUTPUT_MEDIAN_TOKENS * draw))
        output = min(output, reading.output_tokens_max)
        too_long = prompt + output > reading.context_tokens_max
        if too_long or len(found) >= reading.turns_max:
            break
        turn = TurnScript(
            input_tokens=prompt,
            output_tokens=output,
            kept_tokens=_kept(previous, record, found, reading.shared_tokens),
        )
        following = records[number + 1 : number + 2]
        found.append(_with_pause(turn, following[0], reading) if following else turn)
        previous = record
    return tuple(found)


def _kept(
    previous: TurnRecord | None,
    record: TurnRecord,
    before: list[TurnScript],
    shared_tokens: int,
) -> int:
    """Tokens in common with the previous context: by the recorded blocks, else by growth."""
    if previous is None or not before:
        return 0
    prompt = record.input_tokens or 0
    context = before[-1].input_tokens + before[-1].output_tokens
    if not (previous.block_runs and record.block_runs and record.block_size):
        # A prompt that shrank was rewritten.
        rewritten = prompt < before[-1].input_tokens
        return min(prompt, shared_tokens) if rewritten else min(context, prompt)
    common = _common_blocks(previous.block_runs, record.block_runs) * record.block_size
    if common + record.block_size > (previous.input_tokens or 0):
        return min(context, prompt)  # the whole prompt is there still, hence the reply too
    return min(common, prompt)


def _common_blocks(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> int:
    """Leading blocks that two lists of (first id, count) runs have in common."""
    common = 0
    one, two = list(reversed(first)), list(reversed(second))
    while one and two:
        (start, count), (other, other_count) = one.pop(), two.pop()
        if start != other:
            return common
        step = min(count, other_count)
        common += step
        if count > step:
            one.append((start + step, count - step))
        if other_count > step:
            two.append((other + step, other_count - step))
    return common


def _with_pause(turn: TurnScript, following: TurnRecord, reading: TraceReading) -> TurnScript:
    gap_s = min(following.gap_s, reading.gap_s_max)
    if not following.tools:
        return replace(turn, gap_s=gap_s)
    begin_s = min(tool.start_s for tool in following.tools)
    tools = tuple(_tool(tool, begin_s, reading) for tool in following.tools)
    return replace(turn, tools=tools, gap_s=gap_s)


def _tool(tool: ToolRecord, begin_s: float, reading: TraceReading) -> ToolScript:
    return ToolScript(
        name=tool.tool,
        key=tool.key,
        offset_s=min(tool.start_s - begin_s, reading.tool_s_max),
        duration_s=max(0.001, min(tool.duration_s, reading.tool_s_max)),
        timeout_s=tool.timeout_s,
        background=tool.background,
    )
