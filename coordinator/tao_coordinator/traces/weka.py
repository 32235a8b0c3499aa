"""Weka traces (kv-cache-tester): one JSON document per conversation, times in seconds.

A request has `t` (start), `in`, `out`, `hash_ids` (blocks of `block_size` tokens), `api_time` and
`think_time` (whole seconds; tool, permission and person in one). `type: subagent` entries nest the
requests of a sub-agent, which becomes a session of its own. No tool names: gaps only.
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

NAME: Final = "weka"


def read(text: str, name: str) -> Trace:
    """Read one conversation with its sub-agents.

    Args:
        text: one JSON document.
        name: of the file, for messages and as a fallback id.

    Raises:
        MalformedTrace: no conversation with at least one usable request.
    """
    skipped = SkippedRows()
    try:
        document = fields.parse_row(text)
        session_id = fields.text(document, "id", "") or name
        sessions = _sessions(document, session_id, None, skipped)
    except FieldError as error:
        raise MalformedTrace(f"{name}: {error}") from error
    if not sessions:
        raise MalformedTrace(f"{name}: no usable Weka request{skipped.to_value().first_reason()}")
    return Trace(format=NAME, sessions=tuple(sessions), skipped=skipped.to_value())


def _sessions(
    document: Row, session_id: str, parent_id: str | None, skipped: SkippedRows
) -> list[SessionRecord]:
    block_size = fields.tokens(document, "block_size") or 64
    turns: list[TurnRecord] = []
    children: list[SessionRecord] = []
    first_s: float | None = None
    for number, item in enumerate(fields.items(document, "requests")):
        where = f"{session_id} request {number}"
        try:
            request = fields.as_row(item, "request")
            if request.get("type") == "subagent" and parent_id is None:
                child_id = f"{session_id}/{fields.text(request, 'agent_id', str(number))}"
                nested = {"block_size": block_size, **request}
                children += _sessions(nested, child_id, session_id, skipped)
                continue
            start_s = fields.seconds(request, "t")
            if start_s is None:
                raise FieldError("t is missing")
            first_s = start_s if first_s is None else first_s
            turns.append(_turn(request, f"{session_id}:{number}", start_s - first_s, block_size))
        except FieldError as error:
            skipped.add(where, str(error))
    if not turns:
        return children
    turns.sort(key=lambda turn: turn.arrival_s)
    models = [model for model in fields.items(document, "models") if isinstance(model, str)]
    own = SessionRecord(
        session_id=session_id,
        turns=tuple(turns),
        parent_session_id=parent_id,
        harness="claude-code",
        model=models[0] if models else "",
        source=NAME,
    )
    return [own, *children]


def _turn(request: Row, request_id: str, arrival_s: float, block_size: int) -> TurnRecord:
    input_types = fields.items(request, "input_types")
    think_s = fields.seconds(request, "think_time") or 0.0
    return TurnRecord(
        request_id=request_id,
        arrival_s=max(0.0, arrival_s),
        duration_s=fields.seconds(request, "api_time"),
        input_tokens=fields.tokens(request, "in"),
        output_tokens=fields.tokens(request, "out"),
        gap_s=think_s,
        gap_is_person=bool(input_types) and "tool_result" not in input_types,
        block_size=block_size,
        block_runs=fields.block_runs(request),
    )
