"""The two taps of mini-SWE-agent: `model._query` (turns) and `env.execute` (tool calls).

A tap stands in for one bound method of one instance, for as long as a session runs through it; then
the instance is as it was. `_query` and not `query`, whose retries shall each ask anew where to go.
Nothing of the SDK that fails in here changes what the agent does.
"""

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from minisweagent.exceptions import InterruptAgentFlow

import tao_client as tao
from tao_integrations import _litellm_calls as calls
from tao_integrations._quiet import leave, quiet, warn_once

TOOL_NAME = "bash"
TIMEOUT_TYPES = ("TimeoutExpired", "TimeoutError")
"""What environments name as `extra.exception_type` when a command took too long."""
HOSTED_MODEL_MODULES = ("openrouter", "portkey", "requesty")
"""Model classes with an address of their own: there is nothing to place."""

_lock = threading.RLock()


def tap(agent: Any, session: tao.Session) -> "list[Tap]":
    """Let the calls of an agent's environment and model run through this session.

    Agents that share a model or an environment share its tap.
    """
    taps: list[Tap] = []
    with quiet("tap the agent's environment and model"), _lock:
        taps.append(_tap_on(agent.env, "execute", CommandTap, session))
        if _is_placeable(agent.model):
            taps.append(_tap_on(agent.model, "_query", QueryTap, session))
    return taps


def untap(taps: "list[Tap]", session: tao.Session) -> None:
    """Undo `tap`; the instances are as they were once no session is left on them."""
    with quiet("untap the agent's environment and model"), _lock:
        for one in taps:
            one.leave(session)


class Tap:
    """Stands in for one bound method of one instance while sessions run through it."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name
        self.original: Callable[..., Any] = getattr(owner, name)
        self._had_own = name in attributes(owner)
        self._sessions: list[tao.Session] = []

    def enter(self, session: tao.Session) -> None:
        """A run of this session begins."""
        setattr(self.owner, self.name, self)
        self._sessions.append(session)

    def leave(self, session: tao.Session) -> None:
        """A run of this session is over."""
        if session in self._sessions:
            self._sessions.remove(session)
        # Wrapped by somebody else meanwhile: it stays, and passes everything through.
        if self._sessions or attributes(self.owner).get(self.name) is not self:
            return
        if self._had_own:
            setattr(self.owner, self.name, self.original)
        else:
            delattr(self.owner, self.name)

    def session(self) -> tao.Session | None:
        """The session that a call made here and now belongs to.

        The current one of this thread; on a thread that an agent started itself, the only one there
        is. None: nobody's, the call passes through.
        """
        if not self._sessions:
            return None
        current = tao.current_session()
        if current is not None:
            return current
        sessions = set(self._sessions)
        return sessions.pop() if len(sessions) == 1 else None


class CommandTap(Tap):
    """`env.execute`: each command a tool call."""

    def __call__(self, action: Any, *args: Any, **kwargs: Any) -> Any:
        """Execute the action; its end is told whatever way it ends."""
        session = self.session()
        if session is None:
            return self.original(action, *args, **kwargs)
        call = self._start(session, action, kwargs.get("timeout"))
        error: BaseException | None = None
        try:
            output = self.original(action, *args, **kwargs)
            if _has_timed_out(output):
                error = TimeoutError("the command took longer than its environment allows")
            return output
        except InterruptAgentFlow:  # `Submitted` is raised from here: how a good run ends
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            if call is not None:
                leave(call, error)

    def _start(self, session: tao.Session, action: Any, timeout: Any) -> tao.ToolCall | None:
        with quiet("tell that a command starts"):
            config = getattr(self.owner, "config", None)
            return session.tool_call(
                TOOL_NAME,
                call_id=action.get("tool_call_id"),
                timeout_s=timeout or getattr(config, "timeout", None),
                command=action.get("command"),
            ).__enter__()
        return None


class QueryTap(Tap):
    """`model._query`: each attempt a turn."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the lease, send the call where it belongs, give the lease back."""
        session = self.session()
        if session is None:
            return self.original(*args, **kwargs)
        asked_s = time.monotonic()
        turn = self._ask(session, args, kwargs)
        if turn is None:
            return self.original(*args, **kwargs)
        error: BaseException | None = None
        try:
            with quiet("send a call to its backend"):
                held_s = time.monotonic() - asked_s
                kwargs = calls.placed(turn, self.owner.config, kwargs, held_s=held_s)
            response = self.original(*args, **kwargs)
            with quiet("read the usage of a reply"):
                calls.report_usage(turn, response)
            return response
        except BaseException as raised:
            error = raised
            raise
        finally:
            leave(turn, error)

    def _ask(
        self, session: tao.Session, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tao.Turn | None:
        config = self.owner.config
        held: tao.HoldTimeoutError | None = None
        with quiet("ask for a lease"):
            messages = args[0] if args else kwargs.get("messages")
            turn = calls.new_turn(session, config, messages, kwargs)
            try:
                turn.acquire()
            except tao.HoldTimeoutError as too_long:
                held = too_long
            else:
                return turn
        if held is not None:
            raise calls.own_timeout(held, config) from held
        return None


def attributes(instance: Any) -> dict[str, object]:
    """The instance's own attributes, which hide those of its class."""
    return getattr(instance, "__dict__", {})


def _tap_on(owner: Any, name: str, kind: type[Tap], session: tao.Session) -> Tap:
    present = attributes(owner).get(name)
    one = present if isinstance(present, Tap) else kind(owner, name)
    one.enter(session)
    return one


def _is_placeable(model: Any) -> bool:
    """Whether its calls can be sent to a backend; if not, say why once."""
    query = getattr(model, "_query", None)
    provider = calls.provider(getattr(model, "config", None))
    if query is None:
        reason = "it has no `_query`"
    elif any(word in type(model).__module__ for word in HOSTED_MODEL_MODULES):
        reason = "it has an address of its own"
    elif not _takes_address(query):
        reason = "its `_query` takes no `api_base` and `extra_headers`"
    elif provider not in calls.OPENAI_PROVIDERS:
        reason = f"{provider!r} is no provider that calls an OpenAI API at an address of yours"
    else:
        return True
    warn_once(
        f"model calls of {type(model).__qualname__} are not scheduled: {reason}. "
        "Its commands are told to the coordinator all the same"
    )
    return False


def _takes_address(query: Callable[..., Any]) -> bool:
    parameters = inspect.signature(query).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return takes_all or {"api_base", "extra_headers"} <= parameters.keys()


def _has_timed_out(output: object) -> bool:
    if not isinstance(output, dict):
        return False
    extra = cast("dict[str, object]", output).get("extra")
    if not isinstance(extra, dict):
        return False
    return cast("dict[str, object]", extra).get("exception_type") in TIMEOUT_TYPES
