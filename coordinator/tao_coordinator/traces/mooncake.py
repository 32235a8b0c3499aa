"""Mooncake traces: JSON lines of timestamp (ms), input_length, output_length, hash_ids.

Requests stand alone: each becomes a session of one turn, unless the rows carry a `session_id` (the
multi-turn dialect of AIPerf, with `delay` in ms before each later turn). Blocks are 512 tokens.
"""

from typing import Final

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
_MS: Final = 1000.0


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
    for number, (where, line) in enumerate(fields.lines_of(text)):
        try:
            row = fields.parse_row(line)
            session_id = fields.text(row, "session_id", "") or f"{name}:{number}"
            timestamp_s = fields.instant_s(row, "timestamp", per_second=_MS)
            earlier = turns.get(session_id, [])
            first_s = arrivals_s.setdefault(session_id, timestamp_s)
            turn = _turn(row, f"{session_id}:{len(earlier)}", earlier, timestamp_s, first_s)
        except FieldError as error:
            skipped.add(where, str(error))
            continue
        turns[session_id] = [*earlier, turn]
    if not turns:
        raise MalformedTrace(f"{name}: no usable Mooncake row{skipped.to_value().first_reason()}")
    sessions = tuple(
        SessionRecord(
            session_id=session_id, turns=tuple(rows), arrival_s=arrivals_s[session_id], source=NAME
        )
        for session_id, rows in turns.items()
    )
    return Trace(format=NAME, sessions=sessions, skipped=skipped.to_value())


def _turn(
    row: Row,
    request_id: str,
    earlier: list[TurnRecord],
    timestamp_s: float | None,
    first_s: float | None,
) -> TurnRecord:
    input_tokens = fields.tokens(row, "input_length")
    if input_tokens is None:
        raise FieldError("input_length is missing")
    delay_s = fields.seconds(row, "delay", per_second=_MS) or 0.0
    arrival_s = earlier[-1].arrival_s + delay_s if earlier else 0.0
    if timestamp_s is not None and first_s is not None:
        arrival_s = max(arrival_s, timestamp_s - first_s)
    return TurnRecord(
        request_id=request_id,
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=fields.tokens(row, "output_length"),
        gap_s=delay_s,
        block_size=fields.tokens(row, "block_size") or BLOCK_TOKENS,
        block_runs=fields.block_runs(row),
    )
