"""Mooncake traces: JSON lines of timestamp (ms), input_length, output_length, hash_ids.

Blocks are 512 tokens. Rows may carry a `session_id` (the multi-turn dialect of AIPerf, with `delay`
in ms before each later turn). The published traces do not: there, a later prompt that begins with
all whole blocks of an earlier one is taken for the next turn of its session. Such a trace does not
tell how long replies took, so the time of the reply is part of the pause after it.
"""

from dataclasses import dataclass, replace
from typing import Final, cast

from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    SkippedRows,
    Trace,
    TurnRecord,
)

NAME: Final = "mooncake"
BLOCK_TOKENS: Final = 512
WHOLE_BLOCKS_MIN: Final = 2
"""Of a prompt that another may go on with: the first block is often the same for all sessions."""
_MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The latest prompt of a session that names itself nowhere."""

    session_id: str
    whole_blocks: tuple[int, ...]
    input_tokens: int
    timestamp_s: float

    def begins(self, blocks: tuple[int, ...], input_tokens: int, timestamp_s: float) -> bool:
        """Whether a prompt goes on from this one."""
        return (
            blocks[: len(self.whole_blocks)] == self.whole_blocks
            # The reply in the longer prompt was not there at once.
            and self.input_tokens < input_tokens
            and self.timestamp_s < timestamp_s
        )


class _Unnamed:
    """Prompts of sessions that name themselves nowhere, by their last whole block."""

    def __init__(self) -> None:
        self._by_last_block: dict[int, _Prompt] = {}

    def session_id(self, row: Row, turn: TurnRecord, otherwise: str) -> str:
        """Session of a row; `otherwise`, if it goes on with none that is known."""
        timestamp_s = fields.instant_s(row, "timestamp", per_second=_MS)
        input_tokens = turn.input_tokens or 0
        blocks = tuple(cast("list[int]", fields.items(row, "hash_ids")))
        num_whole = input_tokens // (turn.block_size or BLOCK_TOKENS)
        if timestamp_s is None or not WHOLE_BLOCKS_MIN <= num_whole <= len(blocks):
            return otherwise
        for block in reversed(blocks):
            earlier = self._by_last_block.get(block)
            if earlier is not None and earlier.begins(blocks, input_tokens, timestamp_s):
                # Another prompt that begins like it is a fork, and a session of its own.
                del self._by_last_block[block]
                otherwise = earlier.session_id
                break
        prompt = _Prompt(otherwise, blocks[:num_whole], input_tokens, timestamp_s)
        self._by_last_block[prompt.whole_blocks[-1]] = prompt
        return otherwise


def read(text: str, name: str) -> Trace:
    """Read all requests.

    Args:
        text: JSON lines.
        name: of the file, for messages and session ids.

    Raises:
        MalformedTrace: not one usable row.
    """
    skipped = SkippedRows()
    turns: dict[str, list[TurnRecord]] = {}
    arrivals_s: dict[str, float | None] = {}
    unnamed = _Unnamed()
    for number, (where, line) in enumerate(fields.lines_of(text)):
        try:
            row = fields.parse_row(line)
            turn = _turn(row)
            session_id = fields.text(row, "session_id", "")
            timestamp_s = fields.instant_s(row, "timestamp", per_second=_MS)
        except FieldError as error:
            skipped.add(where, str(error))
            continue
        session_id = session_id or unnamed.session_id(row, turn, otherwise=f"{name}:{number}")
        first_s = arrivals_s.setdefault(session_id, timestamp_s)
        session = turns.setdefault(session_id, [])
        arrival_s = session[-1].arrival_s + turn.gap_s if session else 0.0
        if timestamp_s is not None and first_s is not None:
            arrival_s = max(arrival_s, timestamp_s - first_s)
        gap_s = arrival_s - session[-1].arrival_s if session else turn.gap_s
        request_id = f"{session_id}:{len(session)}"
        session.append(replace(turn, request_id=request_id, arrival_s=arrival_s, gap_s=gap_s))
    if not turns:
        raise MalformedTrace(f"{name}: no usable Mooncake row{skipped.to_value().first_reason()}")
    sessions = tuple(
        SessionRecord(
            session_id=session_id, turns=tuple(rows), arrival_s=arrivals_s[session_id], source=NAME
        )
        for session_id, rows in turns.items()
    )
    return Trace(format=NAME, sessions=sessions, skipped=skipped.to_value())


def _turn(row: Row) -> TurnRecord:
    """What a row says by itself."""
    input_tokens = fields.tokens(row, "input_length")
    if input_tokens is None:
        raise FieldError("input_length is missing")
    return TurnRecord(
        request_id="",
        arrival_s=0.0,
        input_tokens=input_tokens,
        output_tokens=fields.tokens(row, "output_length"),
        gap_s=fields.seconds(row, "delay", per_second=_MS) or 0.0,
        block_size=fields.tokens(row, "block_size") or BLOCK_TOKENS,
        block_runs=fields.block_runs(row),
    )
