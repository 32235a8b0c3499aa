"""`SpanProcessor`: the tool spans of any framework become tool events, at the span's start.

A span is exported when it ends, which is too late to schedule by; a processor sees it begin. Some
frameworks set their attributes just after the start, so a span that could still become a tool's
is looked at again 2 ms later, on a background thread; one that is known only at its end is told
with both its times then.

Loaded at the first use of `tao.SpanProcessor`, because it takes OpenTelemetry's SDK along.
"""

import contextlib
import logging
import queue
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Generator

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import SpanKind, StatusCode

from tao_client import _connection, semconv
from tao_client import _span_reading as reading
from tao_client._conversations import named_conversation
from tao_client._session import Session, current_session
from tao_client._tools import ToolCall, span_tellers

logger = logging.getLogger("tao_client")

SECOND_LOOK_S = 0.002
LIVE_LIMIT = 4096
QUEUE_LIMIT = 2048
MOST_ANCESTORS = 64
FAILURE = "a span was not read; further failures are logged at level debug"


class SpanProcessor(sdk_trace.SpanProcessor):
    """Tells the coordinator of the tool calls that a framework makes spans of.

        provider = TracerProvider()                    # or the one that there is
        provider.add_span_processor(tao.SpanProcessor())

    A call belongs to the `tao.session` that is open around it; outside any, to the conversation
    that the span, the baggage or a parent span names; to neither: it is not told. A tool that is
    decorated with `@tao.tool` (or told by an integration) under the same name as well is told once.
    Spans that a sampler drops are never seen. Nothing is raised into the framework, and no
    arguments or results leave it.
    """

    def __init__(self) -> None:
        self._has_warned = False
        self._is_shut = False
        self._start_afresh()
        _all_processors.add(self)
        span_tellers.add(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span begins: tell of it, if it is a tool's."""
        try:
            if not self._is_shut and _connection.is_emitting():
                self._started(_LiveSpan(span, parent_context))
        except Exception:
            # A boundary: whatever goes wrong here, the framework's own work must go on.
            logger.log(self._failure_level(), FAILURE, exc_info=True)

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended: tell the end of its call."""
        try:
            span_context = span.get_span_context()
            with self._lock:
                live = self._live.pop(span_context.span_id, None) if span_context else None
            if live is not None:
                self._ended(live)
        except Exception:
            # A boundary: as above.
            logger.log(self._failure_level(), FAILURE, exc_info=True)

    def shutdown(self) -> None:
        """Stop. Spans that are still open are not told any more."""
        self._is_shut = True
        if self._has_thread:
            self._queue.put(None)
        with self._lock:
            forgotten = list(self._live.values())
            self._live.clear()
        for live in forgotten:
            _let_go(live)

    def claim(self, session_id: str, tool_name: str) -> str | None:
        """See `SpanTeller`."""
        try:
            span_id = trace.get_current_span().get_span_context().span_id
            with self._lock:
                live = self._live.get(span_id)
            for one in () if live is None else (live, *self._ancestors(live)):
                with one.lock:
                    call = one.call
                    if call is not None and (call.session_id, call.name) == (session_id, tool_name):
                        return call.id
                    one.told_inside.add(tool_name)
        except Exception:
            # A boundary: told twice is better than not running.
            logger.log(self._failure_level(), FAILURE, exc_info=True)
        return None

    # --- spans --------------------------------------------------------------------------------

    def _started(self, live: "_LiveSpan") -> None:
        with self._lock:
            self._live[live.span_id] = live
            evicted = self._live.popitem(last=False)[1] if len(self._live) > LIVE_LIMIT else None
        if evicted is not None:
            _let_go(evicted)
        attributes = live.attributes
        if live.is_own:
            return  # its tool call, if it is one, is told by whoever made the span
        if reading.is_tool_span(live.span.name, attributes):
            self._begin(live)
        elif live.span.kind is SpanKind.INTERNAL and reading.is_still_open(attributes):
            self._look_again(live)

    def _ended(self, live: "_LiveSpan") -> None:
        if not live.is_own and reading.is_tool_span(live.span.name, live.attributes):
            self._begin(live)  # if it has not begun long since
        with live.lock, _within(live.span):
            live.has_ended = True
            if live.call is not None:
                live.call.finish(_error_type(live))

    def _begin(self, live: "_LiveSpan") -> None:
        with live.lock:
            if live.call is not None or live.has_ended:
                return
            attributes = live.attributes
            name = reading.tool_name_of(live.span.name, attributes)
            ancestors = self._ancestors(live)
            if name in live.told_inside:
                return  # by `@tao.tool`, before this span was known to be a tool's
            if any(one.tells(name) for one in ancestors):
                return  # a protocol's own span inside the framework's, such as MCP's
            session = self._session_of(live, ancestors)
            if session is None:
                return
            live.call = session.tool_call(
                name,
                call_id=reading.call_id_of(attributes) or f"span-{live.span_id:016x}",
                timeout_s=reading.timeout_of(attributes),
                command=reading.command_of(name, attributes),
            )
            with _within(live.span):
                live.call.announce(at_ns=live.span.start_time)

    def _ancestors(self, live: "_LiveSpan") -> list["_LiveSpan"]:
        found: list[_LiveSpan] = []
        with self._lock:
            above = self._live.get(live.parent_id)
            while above is not None and len(found) < MOST_ANCESTORS:
                found.append(above)
                above = self._live.get(above.parent_id)
        return found

    def _session_of(self, live: "_LiveSpan", ancestors: list["_LiveSpan"]) -> Session | None:
        for one in (live, *ancestors):
            # Model calls go by the session of the SDK, so tool calls do too.
            if one.session is not None:
                return one.session
        conversation_id = reading.conversation_id_of(live.attributes) or live.baggage_id
        if conversation_id is None:
            named = (reading.conversation_id_of(one.attributes) for one in ancestors)
            conversation_id = next(filter(None, named), None)
        if conversation_id is None:
            return None
        return named_conversation(conversation_id)

    # --- the second look ----------------------------------------------------------------------

    def _look_again(self, live: "_LiveSpan") -> None:
        if self._queue.qsize() >= QUEUE_LIMIT:
            return  # its end will tell
        self._queue.put((time.monotonic() + SECOND_LOOK_S, live))
        if self._has_thread:
            return
        with self._lock:
            if self._has_thread:
                return
            self._has_thread = True
            thread = threading.Thread(target=self._run, name="tao-client-spans", daemon=True)
            # At interpreter shutdown no thread can start.
            with contextlib.suppress(RuntimeError):
                thread.start()

    def _run(self) -> None:
        own_queue = self._queue
        while (item := own_queue.get()) is not None:
            due_s, live = item
            if live.has_ended:
                continue
            time.sleep(max(0.0, due_s - time.monotonic()))
            try:
                if reading.is_tool_span(live.span.name, live.attributes):
                    self._begin(live)
            except Exception:
                # A boundary: one odd span must not end the looking at all others.
                logger.log(self._failure_level(), FAILURE, exc_info=True)

    def _start_afresh(self) -> None:
        """At first, and in a forked child, where the parent's spans are the parent's to tell."""
        # Re-entrant, because a destructor may end a span on the thread that is inside.
        self._lock = threading.RLock()
        self._live: OrderedDict[int, _LiveSpan] = OrderedDict()
        self._queue: queue.SimpleQueue[tuple[float, _LiveSpan] | None] = queue.SimpleQueue()
        self._has_thread = False

    def _failure_level(self) -> int:
        # Once for a person to see; a broken framework would fill the log with every span.
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        return level


class _LiveSpan:
    """A span that has begun and not ended, and the call that was made of it."""

    __slots__ = (
        "baggage_id", "call", "has_ended", "is_own", "lock", "parent_id", "session", "span",
        "told_inside",
    )  # fmt: skip

    def __init__(self, span: Span, parent_context: Context | None) -> None:
        self.span = span
        self.parent_id = span.parent.span_id if span.parent is not None else 0
        self.session = current_session()
        named = baggage.get_baggage(semconv.CONVERSATION_ID, parent_context)
        self.baggage_id = named if isinstance(named, str) and named else None
        self.call: ToolCall | None = None
        self.has_ended = False
        scope = span.instrumentation_scope
        self.is_own = scope is not None and scope.name == semconv.SCOPE_NAME
        """Made by `_spans`."""
        self.told_inside: set[str] = set()
        """Names of tools whose calls inside this span were told by others."""
        self.lock = threading.RLock()
        """Held while the call begins or ends, so that no end overtakes its start."""

    @property
    def span_id(self) -> int:
        return self.span.get_span_context().span_id

    def tells(self, tool_name: str) -> bool:
        """Whether this span is a call of that tool, which is told."""
        if self.is_own:
            return self.attributes.get(semconv.TOOL_NAME) == tool_name
        return self.call is not None and self.call.name == tool_name

    @property
    def attributes(self) -> reading.Attributes:
        """As they are now: more may be set until the span ends."""
        return self.span.attributes or {}


@contextlib.contextmanager
def _within(span: Span) -> Generator[None]:
    """Events made inside carry the ids of this span."""
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)


def _let_go(live: _LiveSpan) -> None:
    # How it ended is not known, so nothing is told; without heartbeats the coordinator forgets it.
    with live.lock:
        live.has_ended = True
        if live.call is not None:
            live.call.forget()


def _error_type(live: _LiveSpan) -> str | None:
    types = (
        (event.attributes or {}).get("exception.type")
        for event in live.span.events
        if event.name == "exception"
    )
    is_error = live.span.status.status_code is StatusCode.ERROR
    return reading.error_type_of(live.attributes, is_error, tuple(str(one) for one in types if one))


_all_processors: "weakref.WeakSet[SpanProcessor]" = weakref.WeakSet()


def _forget_parent_process() -> None:
    for one in list(_all_processors):
        one._start_afresh()


_connection.after_fork(_forget_parent_process)
