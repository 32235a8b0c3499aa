"""Tool calls: the one fact that engines cannot see, sent the moment it is known.

`ToolCall` is the context manager behind `Session.tool_call`; `tool` decorates a function so that
each call of it inside a session is one.
"""

import contextlib
import functools
import inspect
import math
import os
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

from tao_client import _connection, _events, _spans, semconv
from tao_client._commands import SHELL_NAMES, command_head
from tao_client._conversations import current_conversation
from tao_client._session import Session, end_of

P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")
S = TypeVar("S")


class SpanTeller(Protocol):
    """Who tells the tool calls that spans are."""

    def claim(self, session_id: str, tool_name: str) -> str | None:
        """Id of the call, if a span around here is this call and has been told. Never raises.

        Else the caller tells it, and the span does not any more.
        """
        ...


span_tellers: "weakref.WeakSet[SpanTeller]" = weakref.WeakSet()


class ToolCall:
    """One call of a tool, open while its `with` (or `async with`) block runs."""

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        call_id: str | None = None,
        timeout_s: float | None = None,
        key: str | None = None,
        command: str | None = None,
        background: bool = False,
    ) -> None:
        self.id: str = call_id or f"call-{_events.new_id()[:16]}"
        """Id of the call, unique inside its session."""
        self.name = name
        self._session = session
        self._timeout_s = timeout_s
        self._key = key
        self._command = command
        self._background = background
        self._process_id = os.getpid()
        self._started_s = 0.0
        self._is_open = False
        self._span: _spans.OwnSpan | None = None

    @property
    def session_id(self) -> str:
        """Id of the session that it belongs to."""
        return self._session.id

    def progress(self, ratio: float, *, remaining_s: float | None = None) -> None:
        """The call has done this share of its work, 0 to 1."""
        self._update(min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else None, remaining_s)

    def expect(self, *, remaining_s: float) -> None:
        """The call is expected to end in `remaining_s` seconds; a later call replaces it."""
        self._update(None, remaining_s)

    def begin(self) -> None:
        """The call begins. Entering the `with` block does it.

        Where a `SpanProcessor` has told the same call by a framework's span, it is not told again:
        this object then speaks for that one, and has its id.
        """
        self._begin(is_current=False)

    def announce(self, *, at_ns: int | None = None) -> None:
        """Tell that the call has begun; for who knows that nobody else tells it.

        Args:
            at_ns: Wall time at which it began, nanoseconds, if that is not now.
        """
        self._started_s = time.monotonic()
        if at_ns is not None:
            self._started_s -= max(0, time.time_ns() - at_ns) / 1e9
        self._is_open = True
        self._session.open_call(self.id)
        self._session.emit(
            semconv.TOOL_START,
            {
                semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
                semconv.TOOL_NAME: self.name,
                semconv.TOOL_CALL_ID: self.id,
                semconv.TOOL_TIMEOUT: None if self._timeout_s is None else float(self._timeout_s),
                semconv.TOOL_KEY: self._shown_key(),
                semconv.TOOL_BACKGROUND: self._background or None,
            },
            at_ns=at_ns,
        )

    def finish(self, error_type: str | None = None) -> None:
        """The call has ended; the first time counts. Leaving the `with` block does it.

        Args:
            error_type: What it failed of: `timeout`, `cancelled`, an exception's name. None: it
                did not fail.
        """
        if not self._is_open or self._process_id != os.getpid():
            return
        self._is_open = False
        self._session.close_call(self.id)
        self._session.emit(
            semconv.TOOL_END,
            {
                semconv.TOOL_NAME: self.name,
                semconv.TOOL_CALL_ID: self.id,
                semconv.TOOL_DURATION: time.monotonic() - self._started_s,
                semconv.ERROR_TYPE: error_type,
            },
        )
        if self._span is not None:
            self._span.end(error_type)

    def forget(self) -> None:
        """How the call ends will never be known: stop saying that it is open."""
        self._is_open = False
        self._session.close_call(self.id)

    def __enter__(self) -> Self:
        self._begin(is_current=True)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reason, error_type = end_of(exc)
        if isinstance(exc, TimeoutError):
            error_type = "timeout"
        elif reason == "cancelled":
            error_type = "cancelled"
        self.finish(error_type)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def _begin(self, *, is_current: bool) -> None:
        for teller in list(span_tellers):
            told_id = teller.claim(self._session.id, self.name)
            if told_id is not None:
                self.id = told_id
                return
        self._span = _spans.open_tool_span(self._session.id, self.name, self.id)
        if self._span is not None and is_current:
            self._span.attach()
        self.announce()

    def _update(self, ratio: float | None, remaining_s: float | None) -> None:
        self._session.emit(
            semconv.TOOL_PROGRESS,
            {
                semconv.TOOL_NAME: self.name,
                semconv.TOOL_CALL_ID: self.id,
                semconv.TOOL_PROGRESS_RATIO: ratio,
                semconv.TOOL_REMAINING: None if remaining_s is None else max(0.0, remaining_s),
            },
        )

    def _shown_key(self) -> str | None:
        if self._key is None and self._command is None:
            return None
        connection = _connection.active()
        if connection is not None and not connection.config.tool_keys:
            return None
        return self._key if self._key is not None else command_head(self._command or "")


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def tool(
    *,
    timeout_s: float | None = None,
    name: str | None = None,
    key: str | None = None,
    background: bool = False,
) -> "ToolDecorator": ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    timeout_s: float | None = None,
    name: str | None = None,
    key: str | None = None,
    background: bool = False,
) -> "Callable[P, R] | ToolDecorator":
    """Make each call of a function, inside a session, a tool call: `@tao.tool` or `@tao.tool(...)`.

    Works on plain and on `async` functions, and on generators of both kinds, whose call lasts from
    the first item to the last; outside a session the function is just called. For a shell tool
    (named `bash`, `shell`, ...) the head of its `command` argument becomes the key.

    Args:
        function: The function, when used without parentheses.
        timeout_s: Hard limit that the tool itself keeps, seconds. Told to the coordinator only.
        name: Name of the tool. Default: the function's.
        key: What calls of about the same duration have in common.
        background: The session does not wait for these calls.
    """

    def open_call(
        tool_name: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> ToolCall | None:
        session = current_conversation()
        if session is None:
            return None
        command = None
        if key is None and tool_name in SHELL_NAMES:
            # The first text: a method has its object before it.
            given = (kwargs.get("command"), *args[:2])
            command = next((one for one in given if isinstance(one, str)), None)
        return session.tool_call(
            tool_name, timeout_s=timeout_s, key=key, command=command, background=background
        )

    def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
        return _decorated(
            wrapped, name or getattr(wrapped, "__name__", type(wrapped).__name__), open_call
        )

    return cast("ToolDecorator", decorate) if function is None else decorate(function)


class ToolDecorator(Protocol):
    """What `tool(...)` returns: it keeps the signature of what it decorates."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate one function."""
        ...


OpenCall = Callable[[str, tuple[object, ...], dict[str, object]], ToolCall | None]


def _decorated(
    function: Callable[P, R],
    tool_name: str,
    open_call: OpenCall,
) -> Callable[P, R]:
    if inspect.isgeneratorfunction(function):
        return cast("Callable[P, R]", _decorated_generator(function, tool_name, open_call))
    if inspect.isasyncgenfunction(function):
        return cast("Callable[P, R]", _decorated_async_generator(function, tool_name, open_call))
    if inspect.iscoroutinefunction(function):
        awaited = cast("Callable[P, Coroutine[Any, Any, object]]", function)

        @functools.wraps(function)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> object:
            call = open_call(tool_name, args, kwargs)
            if call is None:
                return await awaited(*args, **kwargs)
            async with call:
                return await awaited(*args, **kwargs)

        return cast("Callable[P, R]", call_async)

    @functools.wraps(function)
    def call_sync(*args: P.args, **kwargs: P.kwargs) -> R:
        call = open_call(tool_name, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        with call:
            return function(*args, **kwargs)

    return call_sync


def _decorated_generator(
    function: Callable[P, Generator[Y, S, R]], tool_name: str, open_call: OpenCall
) -> Callable[P, Generator[Y, S, R]]:
    @functools.wraps(function)
    def call_generator(*args: P.args, **kwargs: P.kwargs) -> Generator[Y, S, R]:
        with _from_first_to_last_item(open_call(tool_name, args, kwargs)):
            return (yield from function(*args, **kwargs))

    return call_generator


def _decorated_async_generator(
    function: Callable[P, AsyncGenerator[Y, S]], tool_name: str, open_call: OpenCall
) -> Callable[P, AsyncGenerator[Y, S]]:
    @functools.wraps(function)
    async def call_generator(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Y, S]:
        with _from_first_to_last_item(open_call(tool_name, args, kwargs)):
            async with contextlib.aclosing(function(*args, **kwargs)) as inner:
                # What `yield from` does, which there is not for these.
                try:
                    item = await anext(inner)
                    while True:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # noqa: BLE001 - it goes where it belongs
                            item = await inner.athrow(error)
                        else:
                            item = await inner.asend(sent)
                except StopAsyncIteration:
                    return

    return call_generator


def _from_first_to_last_item(call: ToolCall | None) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    if call is not None:
        # Its span is not the current one: what runs between two items is the caller's.
        call.begin()
        stack.push(call)
    return stack
