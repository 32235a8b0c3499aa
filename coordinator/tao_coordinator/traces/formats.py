"""All trace formats by name, and how to tell them apart."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from tao_coordinator.traces import (
    agent_rows,
    agent_trace,
    claude_code,
    fields,
    mini_swe_agent,
    mooncake,
    tracelab,
    weka,
)
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import MalformedTrace, Skipped, Trace, told_apart

FORMATS: Final[Mapping[str, Callable[[str, str], Trace]]] = {
    agent_trace.NAME: agent_trace.read,
    claude_code.NAME: claude_code.read,
    mini_swe_agent.NAME: mini_swe_agent.read,
    mooncake.NAME: mooncake.read,
    tracelab.NAME: tracelab.read,
    weka.NAME: weka.read,
}
"""Readers by format: (text, name of the file) -> trace."""

_LOOKED_AT = 50
"""Lines that may pass before a usable one shows the format."""


def read(text: str, name: str, format_name: str | None = None) -> Trace:
    """Read a trace of any known format.

    Args:
        text: the whole file.
        name: of the file, for messages and fallback ids.
        format_name: one of `FORMATS`; `None`: told by the content.

    Raises:
        MalformedTrace: unknown format, or nothing usable in it.
    """
    found = format_name or detect(text)
    if found is None:
        raise MalformedTrace(f"{name}: no known trace format ({', '.join(FORMATS)})")
    if found not in FORMATS:
        raise MalformedTrace(f"unknown trace format {found!r}; known: {', '.join(FORMATS)}")
    return FORMATS[found](text, name)


def detect(text: str) -> str | None:
    """Name of the format, by the fields of the first usable row; `None`: none fits."""
    if text.lstrip().startswith("{"):
        try:
            # A document may be spread over lines; a first line that is JSON is JSON lines.
            first = next(line for _, line in fields.lines_of(text))
            fields.parse(first)
        except FieldError:
            try:
                return _of_row(fields.parse_row(text))
            except FieldError:
                pass
    for _, line in islice(fields.lines_of(text), _LOOKED_AT):
        try:
            found = _of_row(fields.parse_row(line))
        except FieldError:
            continue
        if found is not None:
            return found
    return None


def _of_row(row: Row) -> str | None:
    if "trajectory_format" in row:
        return mini_swe_agent.NAME
    if isinstance(row.get("requests"), list):
        return weka.NAME
    if row.get("type") in ("assistant", "user", "summary", "queue-operation", "system"):
        return claude_code.NAME
    if agent_rows.VERSION_FIELD in row:
        return agent_trace.NAME
    if "session_id" in row and ("request_id" in row or "tool_events" in row):
        return agent_trace.NAME
    if tracelab.EVENTS_FIELD in row and "round_id" in row:
        return tracelab.NAME
    if "input_length" in row:
        return mooncake.NAME
    return None


def joined(traces: Iterable[Trace]) -> Trace:
    """Several texts as one trace; a session id that comes twice gets a number.

    Raises:
        MalformedTrace: no trace at all.
    """
    parts = list(traces)
    if not parts:
        raise MalformedTrace("no trace to read")
    skipped = Skipped()
    for part in parts:
        skipped = skipped + part.skipped
    sessions = told_apart([session for part in parts for session in part.sessions])
    formats = sorted({part.format for part in parts})
    return Trace(format="+".join(formats), sessions=sessions, skipped=skipped)
