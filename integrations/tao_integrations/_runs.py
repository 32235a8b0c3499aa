"""One run of an agent, for frameworks that tell the start and the end of things separately.

Nothing in here raises what fails in the SDK.
"""

import threading
from collections.abc import Hashable, Mapping
from typing import cast

import tao_client as tao
from tao_integrations._quiet import leave, quiet

OPEN_CALLS_MAX = 10_000
"""More calls open at a time are not told: somebody forgets to end them."""
SHELL_TOOLS = frozenset({"bash", "shell", "sh", "terminal", "run_command", "execute_bash"})
"""Tools whose argument `command` is a shell's command line."""


class Run:
    """A session of its own, or the one that is open around the run."""

    def __init__(self, session: tao.Session, *, is_own: bool) -> None:
        self.session = session
        self._is_own = is_own

    def leave(self, error: BaseException | None) -> None:
        """The run is over; so is its session, unless somebody else opened it."""
        if self._is_own:
            leave(self.session, error)


def enter_run(session_id: str | None, *, agent: str, fallback_id: str | None = None) -> Run | None:
    """Open a session, or join the one that is open here; None if that fails.

    Args:
        session_id: Names the session. None: join the open one, if there is one.
        agent: Name of the agent.
        fallback_id: Names the session where none is given and none is open. Default: a fresh name.
    """
    with quiet("open a session"):
        current = tao.current_session()
        if session_id is None and current is not None:
            return Run(current, is_own=False)
        session = tao.session(session_id or fallback_id, agent=agent)
        return Run(session.__enter__(), is_own=True)
    return None


class OpenCalls:
    """Tool calls that were told to have started, until they end. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Hashable, tuple[tao.Session, tao.ToolCall]] = {}

    def start(
        self,
        key: Hashable,
        session: tao.Session,
        name: str,
        *,
        call_id: str | None = None,
        timeout_s: float | None = None,
        command: str | None = None,
    ) -> None:
        """A tool call starts; `end` knows it by its key."""
        with quiet("tell that a tool call starts"):
            call = session.tool_call(name, call_id=call_id, timeout_s=timeout_s, command=command)
            self.end(key)
            with self._lock:
                if len(self._calls) >= OPEN_CALLS_MAX:
                    return
                # Not entered: its end may come in another thread or context.
                call.begin()
                self._calls[key] = (session, call)

    def end(self, key: Hashable, error: BaseException | None = None) -> None:
        """The tool call has ended, with this error or well. An unknown one is passed over."""
        with self._lock:
            entry = self._calls.pop(key, None)
        if entry is not None:
            leave(entry[1], error)

    def end_all(self, session: tao.Session, error: BaseException | None) -> None:
        """End what a session has left open: calls whose own end the framework did not tell."""
        with self._lock:
            left = [key for key, (owner, _) in self._calls.items() if owner is session]
        for key in left:
            self.end(key, error)


def shell_command(tool_name: str, arguments: object) -> str | None:
    """The command line that a shell tool is called with; None for any other tool."""
    if tool_name not in SHELL_TOOLS or not isinstance(arguments, Mapping):
        return None
    command = cast("Mapping[str, object]", arguments).get("command")
    return command if isinstance(command, str) else None
