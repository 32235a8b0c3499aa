"""mini-SWE-agent on the SDK: every command is a tool call, every model call a scheduled turn.

Three doors, one mechanism behind them:

1. By configuration, for `mini` and everything that takes an agent class by import path:
   `agent_class: tao_integrations.mini_swe_agent.TaoInteractiveAgent` (or `TaoDefaultAgent`).
2. For batch runs, whose agent class is fixed (`mini-extra swebench`, `programbench`): the same
   command line behind `python -m tao_integrations.mini_swe_agent`, for example
   `python -m tao_integrations.mini_swe_agent swebench --subset lite -w 32`; or `instrument()` in a
   script of your own. The session's id is the instance's.
3. For a script that builds its agent itself: `bind(agent)`, or `bind(agent, session)`.

While the agent runs, two methods of its parts are tapped, on the instances and nowhere else:
`model._query` (not `query`, so that each retry asks anew where to go) and `env.execute`. The
coordinator comes from `TAO_ENDPOINT` or `tao_client.connect`; without one, or when it gives no
answer, the call that goes out is exactly the one that mini-SWE-agent would have made. Nothing that
fails in here reaches the agent, with one exception that is meant: a turn held for its whole
time-out raises `litellm.Timeout`, as a server that never answers would.
"""

import functools
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

from minisweagent.agents.default import DefaultAgent
from minisweagent.agents.interactive import InteractiveAgent

import tao_client as tao
from tao_integrations import _litellm_calls as calls
from tao_integrations._mini_swe_agent_taps import attributes, tap, untap
from tao_integrations._quiet import leave, quiet

__all__ = ["TaoDefaultAgent", "TaoInteractiveAgent", "bind", "instrument", "unbind", "uninstrument"]

AGENT_NAME = "mini-swe-agent"

# mini-SWE-agent's own protocols say `Any` and `dict` at these places.
Agent = Any
Result = dict[str, Any]
Run = Callable[..., Result]
AgentType = TypeVar("AgentType")

_ORIGINAL = "_tao_original"
_SESSION = "_tao_session"
_TAPS = "_tao_taps"
_running_agents: set[int] = set()


class TaoDefaultAgent(DefaultAgent):
    """`DefaultAgent`, each run of it a session."""

    def run(self, task: str = "", **kwargs: object) -> Result:
        """Run as `DefaultAgent` does, inside a session."""
        run = cast("Run", super().run)  # pyright: ignore[reportUnknownMemberType] - untyped there
        return _run_in_session(self, functools.partial(run, task, **kwargs))


class TaoInteractiveAgent(InteractiveAgent):
    """`InteractiveAgent` (what `mini` runs), each run of it a session."""

    def run(self, task: str = "", **kwargs: object) -> Result:
        """Run as `InteractiveAgent` does, inside a session."""
        run = cast("Run", super().run)  # pyright: ignore[reportUnknownMemberType] - untyped there
        return _run_in_session(self, functools.partial(run, task, **kwargs))

    def _prompt_and_handle_slash_commands(self, prompt: str, *, _multiline: bool = False) -> str:
        # A person may take minutes: worth knowing for whoever keeps the session's cache.
        session = tao.current_session()
        if session is not None:
            with quiet("tell that the session waits"):
                session.wait("user_input")
        return super()._prompt_and_handle_slash_commands(prompt, _multiline=_multiline)


def instrument(session_id: Callable[[Agent], str] | None = None) -> None:
    """Make every run of every `DefaultAgent` of this process, subclasses included, a session.

    Calling it again only replaces `session_id`.

    Args:
        session_id: Names the session of an agent. Default: the agent's `instance_id`, else a fresh
            name. Give one where the same instances run twice at a time against one coordinator.
    """
    original = _uninstrumented_run()

    @functools.wraps(original)
    def run(self: DefaultAgent, *args: object, **kwargs: object) -> Result:
        return _run_in_session(
            self, functools.partial(original, self, *args, **kwargs), session_id=session_id
        )

    setattr(run, _ORIGINAL, original)
    DefaultAgent.run = run


def uninstrument() -> None:
    """Undo `instrument`. Runs under way stay sessions to their end."""
    DefaultAgent.run = _uninstrumented_run()


def bind(agent: AgentType, session: tao.Session | None = None) -> AgentType:
    """Put one agent on the SDK, and return that agent.

    Args:
        agent: A `DefaultAgent`, or anything else with `run`, `model` and `env`.
        session: The session that its runs belong to, opened and ended by the caller. Default: each
            run opens its own, and ends it.
    """
    unbind(agent)
    target: Agent = agent
    original: Run = target.run

    @functools.wraps(original)
    def run(*args: object, **kwargs: object) -> Result:
        return _run_in_session(
            target, functools.partial(original, *args, **kwargs), session=session
        )

    setattr(run, _ORIGINAL, original)
    setattr(run, _SESSION, session)
    with quiet("bind the agent"):
        target.run = run
        if session is not None:
            # Now already, so that a script that calls `agent.step()` itself is seen too.
            setattr(run, _TAPS, tap(target, session))
    return agent


def unbind(agent: AgentType) -> AgentType:
    """Undo `bind`, and return the agent. One that was never bound stays as it is."""
    target: Agent = agent
    with quiet("unbind the agent"):
        run = attributes(target).get("run")
        if hasattr(run, _ORIGINAL):
            del target.run
            untap(getattr(run, _TAPS, []), getattr(run, _SESSION))
    return agent


def main() -> None:
    """`mini-extra SUBCOMMAND ...`, or `mini ...` without one, with every run a session."""
    from minisweagent.run.utilities import mini_extra

    instrument()
    if os.environ.get("TAO_ENDPOINT"):
        # Before the agents start, so that their first calls do not wait for imports and handshakes.
        with quiet("connect to the coordinator"):
            tao.connect()
    names = [name for _, aliases, _ in mini_extra.subcommands for name in aliases]
    if sys.argv[1:2] and sys.argv[1] in names:
        mini_extra.main()
    else:
        from minisweagent.run.mini import app

        app()


def _uninstrumented_run() -> Run:
    run = cast("Run", attributes(DefaultAgent)["run"])
    return getattr(run, _ORIGINAL, run)


def _run_in_session(
    agent: Agent,
    run: Callable[[], Result],
    *,
    session: tao.Session | None = None,
    session_id: Callable[[Agent], str] | None = None,
) -> Result:
    if id(agent) in _running_agents:  # came in by another door already: one run, one session
        return run()
    _running_agents.add(id(agent))
    try:
        if session is not None:
            return session.run(_run_tapped, agent, session, run)
        opened = _open_session(agent, session_id)
        if opened is None:
            return run()
        error: BaseException | None = None
        try:
            return _run_tapped(agent, opened, run)
        except BaseException as raised:
            error = raised
            raise
        finally:
            leave(opened, error)
    finally:
        _running_agents.discard(id(agent))


def _run_tapped(agent: Agent, session: tao.Session, run: Callable[[], Result]) -> Result:
    taps = tap(agent, session)
    try:
        return run()
    finally:
        untap(taps, session)


def _open_session(agent: Agent, session_id: Callable[[Agent], str] | None) -> tao.Session | None:
    with quiet("open a session"):
        if session_id is not None:
            name = session_id(agent)
        else:
            name = getattr(agent, "instance_id", "") or f"mini-{uuid.uuid4().hex[:12]}"
        model = calls.served_model(getattr(agent.model, "config", None))
        return tao.session(name, agent=AGENT_NAME, model=model).__enter__()
    return None


if __name__ == "__main__":
    # Not this module's own copy named `__main__`: an agent class by import path needs the same one.
    from tao_integrations.mini_swe_agent import main as main_of_the_package

    main_of_the_package()
