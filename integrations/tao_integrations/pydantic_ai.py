"""Pydantic AI on the scheduler: each run a session, each of its tool calls told.

    client = tao.wrap(AsyncOpenAI())
    model = OpenAIChatModel("my-model", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, capabilities=[TaoCapability()])

    await agent.run("Fix the bug.", conversation_id="swe-17")

The wrapped client places the model calls; the capability opens the sessions and tells the tool
calls. Nothing that fails in here reaches the run.
"""

from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.run import AgentRunResult

import tao_client as tao
from tao_integrations._quiet import leave, quiet
from tao_integrations._runs import enter_run, shell_command

__all__ = ["TaoCapability"]


@dataclass
class TaoCapability(AbstractCapability[Any]):
    """A capability for any number of runs, at once or one after the other.

    A run belongs to the `tao.session` that is open around it, or else to one of its own, named by
    the conversation.
    """

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Run inside a session."""
        name = ctx.agent.name if ctx.agent is not None else None
        run = enter_run(None, agent=name or "", fallback_id=ctx.conversation_id)
        error: BaseException | None = None
        try:
            return await handler()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if run is not None:
                run.leave(error)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Execute a tool as a tool call of the session."""
        told = _start(call, tool_def, args)
        error: BaseException | None = None
        try:
            return await handler(args)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if told is not None:
                leave(told, error)


def _start(call: ToolCallPart, tool_def: ToolDefinition, args: object) -> tao.ToolCall | None:
    with quiet("tell that a tool call starts"):
        session = tao.current_session()
        if session is not None:
            return session.tool_call(
                call.tool_name,
                call_id=call.tool_call_id,
                timeout_s=tool_def.timeout,
                command=shell_command(call.tool_name, args),
            ).__enter__()
    return None
