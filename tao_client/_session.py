"""Sessions: one agent run each, with its tool calls and turns.

The current session is a context variable: asyncio tasks inherit it, nested sessions find their
parent in it, new threads start without one (`Session.run` carries it over). What is learned about
the prompt (its size, its characters per token) stays with the session object.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Literal, ParamSpec, Self, TypeVar

from tao_client import _ancestry, _config, _connection, _events, _spans, semconv
from tao_client._events import AttributeValue

if TYPE_CHECKING:
    from tao_client._courier import Courier, HeldLease
    from tao_client._tools import ToolCall
    from tao_client._turn import Turn

P = ParamSpec("P")
R = TypeVar("R")

EndReason = Literal["completed", "cancelled", "error", "abandoned"]
WaitReason = Literal["user_input", "approval", "schedule", "external"]

_LEARNING_GAIN = 0.2
"""Weight of one counted prompt in what new sessions are estimated with."""

_current: ContextVar["Session | None"] = ContextVar("tao_session", default=None)
_all_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def current_session() -> "Session | None":
    """The innermost open session of this task or thread; None outside any."""
    return _current.get()


def session(
    session_id: str | None = None,
    *,
    priority: int = 0,
    agent: str = "",
    model: str = "",
    tenant: str = "",
    root: str | None = None,
    parent: str | None = None,
) -> "Session":
    """A session to run an agent in: `with tao.session("swe-17") as s:` (or `async with`).

    Inside another session it becomes its child, by default of the same tenant and priority; in a
    process that was started with `Session.environment`, the child of the session that started it.

    Args:
        session_id: Names the run; characters outside `[A-Za-z0-9._:-]` are replaced. Default: a
            fresh one.
        priority: Higher goes first inside a tenant.
        agent: Name of the agent, where one root session runs several.
        model: Model of its turns, unless a turn says otherwise.
        tenant: Whose share of the fleet it counts against.
        root: Id of the outermost session, if that runs in another process.
        parent: Id of the session that started this one, if that runs in another process.
    """
    return Session(
        session_id,
        priority=priority,
        agent=agent,
        model=model,
        tenant=tenant,
        root=root,
        parent=parent,
    )


class Session:
    """One agent run. Made by `tao.session`; safe to use from several threads and tasks."""

    def __init__(
        self,
        session_id: str | None = None,
        *,
        priority: int = 0,
        agent: str = "",
        model: str = "",
        tenant: str = "",
        root: str | None = None,
        parent: str | None = None,
    ) -> None:
        self.id: str = _events.safe_id(session_id) if session_id else f"s-{_events.new_id()}"
        """The id as it goes on the wire."""
        outer = _current.get()
        if parent is None and root is None and outer is not None:
            parent, root = outer.id, outer.root_id
            tenant = tenant or outer.tenant
            priority = priority or outer.priority
        elif parent is None and root is None:
            parent, root = _ancestry.inherited_ancestry()
            if parent is not None and _events.safe_id(parent) == self.id:
                parent = None  # the same session, going on in a child process
        self.parent_id: str | None = _events.safe_id(parent) if parent else None
        self.root_id: str = _events.safe_id(root) if root else self.parent_id or self.id
        """Id of the outermost session; its own id if it is that."""
        self.priority: int = int(priority)
        self.agent: str = agent
        self.model: str = model
        self.tenant: str = tenant
        self._process_id = os.getpid()
        # Re-entrant: a destructor may give a turn back on the thread that is inside.
        self._lock = threading.RLock()
        self._entered: list[tuple[Token[Session | None], _spans.OwnSpan | None]] = []
        """What to put back and to end, one for each `with` block that it is in."""
        self._open_calls: dict[str, None] = {}
        self._heart: Courier | None = None
        """Beats while calls are open; a connection that is replaced takes its own along."""
        self._has_ended = False
        self._chars_per_token: float | None = None
        self._last_chars = 0
        self._last_tokens = 0
        self.last_release: tuple[HeldLease, Mapping[str, object]] | None = None
        """The latest turn's lease and what was told of it when it was given back."""
        _all_sessions.add(self)

    def tool_call(
        self,
        name: str,
        *,
        call_id: str | None = None,
        timeout_s: float | None = None,
        key: str | None = None,
        command: str | None = None,
        background: bool = False,
    ) -> "ToolCall":
        """A tool call to run a tool in: `with s.tool_call("pytest", timeout_s=600) as call:`.

        Args:
            name: Name of the tool.
            call_id: The model's own id of the call. Default: made up.
            timeout_s: Hard limit of the call, seconds. Told to the coordinator, not enforced here.
            key: What calls of about the same duration have in common, such as `pytest`.
            command: A shell's command line: its head (`python -m pytest`) becomes the key. Nothing
                else of it leaves this process, and not even that with `TAO_TOOL_KEYS=0`.
            background: The session does not wait for this call.
        """
        from tao_client._tools import ToolCall

        return ToolCall(
            self,
            name,
            call_id=call_id,
            timeout_s=timeout_s,
            key=key,
            command=command,
            background=background,
        )

    def turn(
        self,
        *,
        model: str = "",
        input_chars: int | None = None,
        input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        timeout_s: float | None = 600.0,
    ) -> "Turn":
        """One model call by any HTTP client: `with s.turn(model="m") as turn:` (or `async with`).

        Entering waits for the lease; leaving gives it back. A client of `tao.wrap` does it itself.

        Args:
            model: Model of the call. Default: the session's.
            input_chars: Characters of the whole prompt; tokens are estimated from them.
            input_tokens: Tokens of the whole prompt, where they are known.
            max_output_tokens: Limit of the reply.
            timeout_s: The call's own time-out, which a hold counts against. None: it has none.
        """
        from tao_client._turn import Turn

        return Turn(
            self,
            model=model or self.model,
            input_chars=input_chars,
            input_tokens=input_tokens,
            max_output_tokens=max_output_tokens,
            timeout_s=timeout_s,
        )

    def wait(self, reason: WaitReason = "user_input", *, expected_s: float | None = None) -> None:
        """The session waits for something that is no tool, such as a person's answer."""
        self.emit(
            semconv.SESSION_WAIT,
            {semconv.WAIT_REASON: reason, semconv.WAIT_EXPECTED: _seconds(expected_s)},
        )

    def deadline(self, *, remaining_s: float) -> None:
        """The session wants its backend again in `remaining_s` seconds; later calls replace it."""
        self.emit(semconv.SESSION_DEADLINE, {semconv.DEADLINE_REMAINING: _seconds(remaining_s)})

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` with this session as the current one: `pool.submit(s.run, f, x)`.

        Threads of a pool start without a session. `asyncio.to_thread` carries it over by itself.
        """
        token = _current.set(self)
        try:
            return function(*args, **kwargs)
        finally:
            _current.reset(token)

    def environment(self) -> dict[str, str]:
        """Variables for a child process: `subprocess.run(cmd, env=os.environ | s.environment())`.

        Sessions there become children of this one, unless they say otherwise. `BAGGAGE` carries the
        id (and what other baggage there is), `TRACEPARENT` the current span, if there is one.
        """
        return _ancestry.environment_for_child(self.id, self.root_id)

    def end(self, reason: EndReason = "completed", *, error_type: str | None = None) -> None:
        """Tell the coordinator that the run is over. Leaving the `with` block does it."""
        with self._lock:
            if self._has_ended or self._is_foreign():
                return
            self._has_ended = True
        self.emit(
            semconv.SESSION_END,
            {semconv.SESSION_END_REASON: reason, semconv.ERROR_TYPE: error_type},
        )

    def __enter__(self) -> Self:
        with self._lock:
            self._has_ended = False
        token = _current.set(self)
        span = _spans.open_session_span(self.id, self.agent)
        if span is not None:
            span.attach()
        with self._lock:
            self._entered.append((token, span))
        self.emit(semconv.SESSION_START, {})
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        span = self._leave()
        reason, error_type = end_of(exc)
        if not self._entered:  # nobody else is inside, in another thread or further out
            self.end(reason, error_type=error_type)
        if span is not None and not self._is_foreign():
            span.end(error_type)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    # --- for the other modules of the SDK --------------------------------------------------------

    def emit(
        self, name: str, attributes: dict[str, AttributeValue | None], at_ns: int | None = None
    ) -> None:
        """Send an event of this session; `at_ns` is its wall time, if that is not now."""
        if not _connection.is_emitting():
            return
        common: dict[str, AttributeValue | None] = {
            semconv.AGENT_NAME: self.agent,
            semconv.REQUEST_MODEL: self.model,
        }
        if self.root_id != self.id:
            common[semconv.ROOT_SESSION_ID] = self.root_id
            common[semconv.PARENT_SESSION_ID] = self.parent_id
        if name == semconv.SESSION_START:
            common[semconv.SESSION_PRIORITY] = self.priority
        _connection.emit(_events.make_event(name, self.id, common | attributes, at_ns))

    def open_call(self, call_id: str) -> None:
        """A tool call begins: heartbeats name it from now on."""
        connection = _connection.active()
        with self._lock:
            self._open_calls[call_id] = None
            if connection is None or connection.emitter is None:
                return
            if self._heart is connection.courier:
                return
            self._heart = connection.courier
        connection.courier.repeat(self._beat)

    def close_call(self, call_id: str) -> None:
        """A tool call has ended."""
        with self._lock:
            self._open_calls.pop(call_id, None)

    def estimate_tokens(self, input_chars: int) -> int:
        """Prompt tokens of a turn, from its characters.

        The last prompt as the engine counted it, and what was added to it at the session's own
        ratio of characters to tokens. A prompt that has shrunk (compaction) is estimated anew.
        Before the first count the ratio is the one of this process's other sessions.
        """
        with self._lock:
            ratio = self._chars_per_token or _shared_ratio()
            added_chars = input_chars - self._last_chars
            if self._last_tokens and added_chars >= 0:
                return self._last_tokens + round(added_chars / ratio)
            return max(1, round(input_chars / ratio))

    def learn_tokens(self, input_chars: int, input_tokens: int) -> None:
        """The engine has counted a prompt of this session."""
        if input_chars <= 0 or input_tokens <= 0:
            return
        with self._lock:
            self._last_chars = input_chars
            self._last_tokens = input_tokens
            self._chars_per_token = ratio = input_chars / input_tokens
        if (connection := _connection.active()) is not None:
            # Unlocked: a lost update of an average is no harm.
            connection.chars_per_token += _LEARNING_GAIN * (ratio - connection.chars_per_token)

    def undelivered_release(self) -> dict[str, object] | None:
        """The latest release, if the courier has not got it through yet.

        It goes along with the next request: a coordinator that saw the two in the wrong order would
        take this session's next turn for one beside a running one.
        """
        last = self.last_release
        if last is None or last[0].is_delivered:
            return None
        return {"lease_id": last[0].lease_id, **last[1]}

    def _leave(self) -> _spans.OwnSpan | None:
        with self._lock:
            for place in range(len(self._entered) - 1, -1, -1):
                try:
                    _current.reset(self._entered[place][0])
                except ValueError:
                    continue  # entered by another thread or task
                return self._entered.pop(place)[1]
            # A generator may be closed in another context than it was started in.
            return self._entered.pop()[1]

    def _beat(self) -> bool:
        with self._lock:
            call_ids = tuple(self._open_calls)
            if not call_ids:
                self._heart = None
                return False
        self.emit(semconv.SESSION_HEARTBEAT, {semconv.OPEN_CALL_IDS: call_ids})
        return True

    def _is_foreign(self) -> bool:
        # A forked child holds a copy of the parent's session; its end is the parent's to tell.
        return self._process_id != os.getpid()

    def _forget_parent_process(self) -> None:
        self._lock = threading.RLock()
        self._open_calls.clear()
        self._heart = None


def end_of(error: BaseException | None) -> tuple[EndReason, str | None]:
    """How something ended, by the exception that left it, and the type to report."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "completed", None
    name = type(error).__qualname__
    if isinstance(error, Exception | SystemExit):
        return "error", name
    # KeyboardInterrupt, GeneratorExit, asyncio.CancelledError and trio.Cancelled have in common
    # that they are no Exception.
    return "cancelled", name


def _seconds(value: float | None) -> float | None:
    return None if value is None else max(0.0, float(value))


def _forget_parent_process() -> None:
    for one in list(_all_sessions):
        one._forget_parent_process()


_connection.after_fork(_forget_parent_process)


def _shared_ratio() -> float:
    connection = _connection.active()
    return _config.CHARS_PER_TOKEN if connection is None else connection.chars_per_token
