"""Events as plain values: what is emitted, before any OpenTelemetry object exists.

Made on the agent's thread in a few microseconds; turned into log records on a background thread.
"""

import itertools
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tao_client import semconv

AttributeValue = str | int | float | bool | tuple[str, ...]

LONGEST_ID = 128
_UNSAFE = re.compile(r"[^A-Za-z0-9._:-]")

_sequence = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a session."""

    name: str
    """Event name of `tao_client.semconv`, for example `tao.tool.start`."""
    attributes: Mapping[str, AttributeValue]
    """Attributes as they go on the wire."""
    timestamp_ns: int
    """Wall time of the occurrence, nanoseconds; times inside the attributes count from it."""
    context: object = field(default=None, repr=False, compare=False)
    """The OpenTelemetry context at that moment, for trace and span ids; None if not in use."""


def make_event(
    name: str,
    session_id: str,
    attributes: Mapping[str, AttributeValue | None],
    at_ns: int | None = None,
) -> Event:
    """An event stamped now, or with the wall time it is given; empty attributes are left out.

    Empty are None and the empty string.
    """
    values: dict[str, AttributeValue] = {
        semconv.CONVERSATION_ID: session_id,
        semconv.RECORD_UID: new_id(),
        semconv.EVENT_SEQUENCE: next(_sequence),
    }
    values.update({key: value for key, value in attributes.items() if value not in (None, "")})
    return Event(name, values, time.time_ns() if at_ns is None else at_ns, _current_context())


def new_id() -> str:
    """A fresh 128-bit id, also after fork (32 hexadecimal digits)."""
    return os.urandom(16).hex()


def safe_id(session_id: str) -> str:
    """The id as the wire allows it; ids that differ stay different."""
    safe = _UNSAFE.sub("_", session_id)
    if safe == session_id and len(safe) <= LONGEST_ID:
        return safe
    import hashlib  # rarely needed, and slow to load

    digest = hashlib.sha256(session_id.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{safe[: LONGEST_ID - 13]}-{digest}"


def current_traceparent() -> str | None:
    """The W3C header of the current span; None when there is none."""
    # Not imported here: without an import elsewhere no span can be current, and it costs 30 ms.
    # The module may be half imported by another thread, hence the look at its attribute.
    get_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if get_span is None:
        return None
    span = get_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def restart_sequence() -> None:
    """Count from one again; called in the child after a fork, which is another emitter."""
    global _sequence
    _sequence = itertools.count(1)


def _current_context() -> object:
    get_current = getattr(sys.modules.get("opentelemetry.context"), "get_current", None)
    return None if get_current is None else get_current()
