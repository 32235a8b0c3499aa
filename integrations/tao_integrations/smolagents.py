"""smolagents on the scheduler: each run a session, each of its tool calls told.

    client = tao.wrap(httpx2.Client())
    model = OpenAIModel("my-model", api_base=URL, client_kwargs={"http_client": client})
    agent = TaoToolCallingAgent(tools=[...], model=model)  # or TaoCodeAgent

    with tao.session("swe-17"):  # without one, each run has a fresh one
        agent.run("Fix the bug.")

The wrapped client places the model calls. A managed agent runs in a session of its own, a child of
its caller's, if it is one of these classes too. Nothing that fails in here reaches the run.
"""

# smolagents is typed in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from smolagents.agents import CodeAgent, MultiStepAgent, ToolCallingAgent
from smolagents.local_python_executor import PythonExecutor

import tao_client as tao
from tao_integrations._quiet import leave, quiet
from tao_integrations._runs import enter_run, shell_command

__all__ = ["TaoCodeAgent", "TaoToolCallingAgent"]

CODE_TOOL = "python_interpreter"
"""The name smolagents itself gives to the execution of an agent's code."""
FINAL_ANSWER = "final_answer"
"""Called like a tool, but the end of the run: nothing is waited for."""

R = TypeVar("R")


class _SessionPerRun(MultiStepAgent):
    """What both kinds of agent have in common."""

    def run(self, task: str, stream: bool = False, *args: Any, **kwargs: Any) -> Any:
        """Run inside a session: the open one, or a fresh one."""
        run = super().run
        if stream:
            return self._streamed(lambda: run(task, True, *args, **kwargs))
        return self._in_session(lambda: run(task, False, *args, **kwargs))

    def __call__(self, task: str, **kwargs: Any) -> Any:
        """Run as somebody's managed agent, in a session of its own."""
        call = super().__call__
        child: tao.Session | None = None
        with quiet("open a session"):
            child = tao.session(agent=self.name or "").__enter__()
        return _left_at_end(child, lambda: call(task, **kwargs))

    def _in_session(self, body: Callable[[], R]) -> R:
        run = enter_run(None, agent=self.name or "")
        error: BaseException | None = None
        try:
            return body()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if run is not None:
                run.leave(error)

    def _streamed(self, start: Callable[[], Any]) -> Generator[Any]:
        run = enter_run(None, agent=self.name or "")
        error: BaseException | None = None
        try:
            yield from start()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if run is not None:
                run.leave(error)


class TaoToolCallingAgent(_SessionPerRun, ToolCallingAgent):
    """`ToolCallingAgent`, telling its runs and tool calls."""

    _call_ids: dict[int, str]

    def process_tool_calls(self, chat_message: Any, memory_step: Any) -> Generator[Any]:
        """Process the calls of one reply, whose ids the tools are not given."""
        with quiet("read the ids of tool calls"):
            # Known by the object that holds a call's arguments: it is passed on as it is.
            self._call_ids = {
                id(call.function.arguments): call.id for call in chat_message.tool_calls
            }
        yield from super().process_tool_calls(chat_message, memory_step)

    def execute_tool_call(self, tool_name: str, arguments: dict[str, str] | str) -> Any:
        """Execute a tool as a tool call of the session."""
        execute = super().execute_tool_call
        call: tao.ToolCall | None = None
        if tool_name != FINAL_ANSWER:
            call_id = getattr(self, "_call_ids", {}).get(id(arguments))
            call = _start(tool_name, call_id=call_id, command=shell_command(tool_name, arguments))
        return _left_at_end(call, lambda: execute(tool_name, arguments))


class TaoCodeAgent(_SessionPerRun, CodeAgent):
    """`CodeAgent`, telling its runs, and each execution of its code as one tool call."""

    def create_python_executor(self) -> PythonExecutor:
        """The executor that the agent would have, told."""
        return _ToldExecutor(super().create_python_executor())


class _ToldExecutor(PythonExecutor):
    def __init__(self, inner: PythonExecutor) -> None:
        self._inner = inner

    def send_tools(self, tools: dict[str, Any]) -> None:
        self._inner.send_tools(tools)

    def send_variables(self, variables: dict[str, Any]) -> None:
        self._inner.send_variables(variables)

    def __call__(self, code_action: str) -> Any:
        limit_s = getattr(self._inner, "timeout_seconds", None)
        call = _start(CODE_TOOL, timeout_s=limit_s)
        return _left_at_end(call, lambda: self._inner(code_action))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _start(
    tool_name: str,
    *,
    call_id: str | None = None,
    timeout_s: float | None = None,
    command: str | None = None,
) -> tao.ToolCall | None:
    with quiet("tell that a tool call starts"):
        session = tao.current_session()
        if session is not None:
            return session.tool_call(
                tool_name, call_id=call_id, timeout_s=timeout_s, command=command
            ).__enter__()
    return None


def _left_at_end(entered: tao.Session | tao.ToolCall | None, body: Callable[[], R]) -> R:
    error: BaseException | None = None
    try:
        return body()
    except BaseException as raised:
        # An error of a tool comes wrapped in one of smolagents' own.
        error = raised.__cause__ or raised
        raise
    finally:
        if entered is not None:
            leave(entered, error)
