"""OpenAI Agents SDK on the scheduler: each run a session, each of its tool calls told.

    client = tao.wrap(AsyncOpenAI())
    agent = Agent(name="coder", model=OpenAIChatCompletionsModel("my-model", client), tools=[...])

    with TaoRunHooks("swe-17") as hooks:
        await Runner.run(agent, "Fix the bug.", hooks=hooks)

The wrapped client places the model calls; the hooks tell the tool calls. One `TaoRunHooks` per run
at a time; for a streamed run, read the stream to its end inside the block. Tools that the model
provider runs itself are part of the model call. Nothing that fails in here reaches the run.
"""

import json
from types import TracebackType
from typing import Any, Self

from agents import Agent, RunContextWrapper, RunHooks, Tool

from tao_integrations._quiet import quiet
from tao_integrations._runs import OpenCalls, Run, enter_run, shell_command

__all__ = ["TaoRunHooks"]


class TaoRunHooks(RunHooks[Any]):
    """Hooks for one run, in whose `with` (or `async with`) block the run takes place."""

    def __init__(self, session_id: str | None = None, *, agent: str = "") -> None:
        """Make hooks.

        Args:
            session_id: Names the run. Default: it belongs to the `tao.session` that is open around
                the block, or else to one with a fresh name.
            agent: Name of the agent.
        """
        self._session_id = session_id
        self._agent = agent
        self._run: Run | None = None
        self._calls = OpenCalls()

    def __enter__(self) -> Self:
        self._run = enter_run(self._session_id, agent=self._agent)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run, self._run = self._run, None
        if run is not None:
            # A tool that raises (`failure_error_function=None`) ends the run without its end hook.
            self._calls.end_all(run.session, exc)
            run.leave(exc)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    async def on_tool_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool
    ) -> None:
        """A tool call starts."""
        if self._run is None:
            return
        with quiet("tell that a tool call starts"):
            self._calls.start(
                _key(context, tool),
                self._run.session,
                tool.name,
                call_id=getattr(context, "tool_call_id", None),
                timeout_s=getattr(tool, "timeout_seconds", None),
                command=shell_command(tool.name, _arguments(context)),
            )

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object
    ) -> None:
        """A tool call has ended, or its error has been made a message to the model."""
        self._calls.end(_key(context, tool))


def _key(context: RunContextWrapper[Any], tool: Tool) -> tuple[str, object]:
    # Computer, shell and patch tools come without a call id, and one after the other.
    return tool.name, getattr(context, "tool_call_id", None)


def _arguments(context: RunContextWrapper[Any]) -> object:
    text = getattr(context, "tool_arguments", None)
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:  # a tool of free form, or a mistake of the model
        return None
