"""Tool calls: the one fact that engines cannot see, sent the moment it is known.

`ToolCall` is the context manager behind `Session.tool_call`; `tool` decorates a function so that
each call of it inside a session is one.
"""

import functools
import inspect
import math
import os
import re
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

from tao_client import _connection, _events, semconv
from tao_client._session import Session, current_session, end_of

P = ParamSpec("P")
R = TypeVar("R")

SHELL_NAMES = frozenset({"bash", "shell", "sh", "zsh", "terminal", "run_command", "execute_bash"})
"""Tools whose `command` is a shell command line."""
_WITH_SUBCOMMAND = frozenset(
    {"git", "pip", "pip3", "uv", "npm", "pnpm", "yarn", "cargo", "go", "make", "docker", "kubectl"}
)
_PREFIX_WORDS = frozenset({"sudo", "time", "nohup", "env", "exec", "command"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_PYTHON = re.compile(r"python[0-9.]*")
_DIRECTORY_CHANGE = re.compile(r"\s*(?:cd|pushd|source|\.|export|set)\s[^&;|\n]*(?:&&|;|\n)")
_COMMAND_END = re.compile(r"[|&;\n<>()`]|\$\(")
LONGEST_COMMAND_LOOKED_AT = 1000


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

    def progress(self, ratio: float, *, remaining_s: float | None = None) -> None:
        """The call has done this share of its work, 0 to 1."""
        self._update(min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else None, remaining_s)

    def expect(self, *, remaining_s: float) -> None:
        """The call is expected to end in `remaining_s` seconds; a later call replaces it."""
        self._update(None, remaining_s)

    def begin(self, *, at_ns: int | None = None) -> None:
        """The call begins. Entering the `with` block does it.

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

    def forget(self) -> None:
        """How the call ends will never be known: stop saying that it is open."""
        self._is_open = False
        self._session.close_call(self.id)

    def __enter__(self) -> Self:
        self.begin()
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

    Works on plain and on `async` functions; outside a session the function is just called. For a
    shell tool (named `bash`, `shell`, ...) the head of its `command` argument becomes the key.

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
        session = current_session()
        if session is None:
            return None
        command = None
        if key is None and tool_name in SHELL_NAMES:
            first = kwargs.get("command", args[0] if args else None)
            command = first if isinstance(first, str) else None
        return session.tool_call(
            tool_name, timeout_s=timeout_s, key=key, command=command, background=background
        )

    def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
        return _decorated(wrapped, name or wrapped.__name__, open_call)

    return cast("ToolDecorator", decorate) if function is None else decorate(function)


class ToolDecorator(Protocol):
    """What `tool(...)` returns: it keeps the signature of what it decorates."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate one function."""
        ...


def _decorated(
    function: Callable[P, R],
    tool_name: str,
    open_call: Callable[[str, tuple[object, ...], dict[str, object]], ToolCall | None],
) -> Callable[P, R]:
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


def command_head(command: str) -> str | None:
    """The part of a command line that says what kind of command it is; never an argument.

    The first word without its path, the module of `python -m`, the sub-command of `git`, `pip`,
    `npm`, `cargo`, `go`, `make`, `docker` and their kin. What only prepares it (`cd DIR &&`,
    `export`, assignments, `sudo`, `timeout 60`) is passed over.

    >>> command_head("cd /repo && PYTHONPATH=. python -m pytest -q tests/test_secret.py")
    'python -m pytest'
    """
    text = command[:LONGEST_COMMAND_LOOKED_AT]
    while match := _DIRECTORY_CHANGE.match(text):
        text = text[match.end() :]
    words = _COMMAND_END.split(text.strip(), maxsplit=1)[0].split()
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _PREFIX_WORDS):
        words = words[1:]
    if len(words) > 2 and words[0] == "timeout":
        words = words[2:]
    if not words:
        return None
    first = words[0].rsplit("/", 1)[-1]
    if not _PLAIN_WORD.fullmatch(first):
        return None
    rest = words[1:]
    if _PYTHON.fullmatch(first):
        module = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
        return f"{first} -m {module}" if _PLAIN_WORD.fullmatch(module) else first
    if first in _WITH_SUBCOMMAND:
        subcommand = next((word for word in rest if not word.startswith("-")), "")
        return f"{first} {subcommand}" if _PLAIN_WORD.fullmatch(subcommand) else first
    return first
