"""LangChain and LangGraph on the scheduler: each run a session, each of its tool calls told.

    model = ChatOpenAI(
        model="my-model",
        http_client=tao.wrap(httpx2.Client()),
        http_async_client=tao.wrap(httpx2.AsyncClient()),
    )
    agent = create_agent(model, tools=[...])

    with tao_config({"configurable": {"thread_id": "swe-17"}}) as config:
        agent.invoke({"messages": [...]}, config)  # or ainvoke, stream, astream

The wrapped clients place the model calls; the callback handler in the config tells the tool calls.
Inside a `tao.session` that you opened yourself, `callbacks=[TaoCallbackHandler()]` is enough.
Nothing that fails in here reaches the run.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import ToolException

import tao_client as tao
from tao_integrations._quiet import quiet
from tao_integrations._runs import OpenCalls, enter_run, shell_command

__all__ = ["TaoCallbackHandler", "tao_config"]

THREAD_NAMES = ("thread_id", "session_id", "conversation_id")
"""Where a config says which conversation a run belongs to: LangGraph's name, then LangSmith's."""


class TaoCallbackHandler(BaseCallbackHandler):
    """Tells the tool calls of the session that is open around them; for any number of runs."""

    run_inline = True
    """In the order of things also where the run is asynchronous: nothing in here waits."""

    def __init__(self) -> None:
        self.open_calls = OpenCalls()

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool call starts."""
        session = tao.current_session()
        if session is None:
            return
        with quiet("tell that a tool call starts"):
            name = str(serialized.get("name") or kwargs.get("name") or "tool")
            self.open_calls.start(
                run_id,
                session,
                name,
                call_id=kwargs.get("tool_call_id"),
                command=shell_command(name, inputs),
            )

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call has ended; a tool may have made a message of its own error."""
        has_failed = getattr(output, "status", None) == "error"
        self.open_calls.end(run_id, ToolException() if has_failed else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call has raised, or was cancelled."""
        self.open_calls.end(run_id, error)


@contextmanager
def tao_config(
    config: RunnableConfig | None = None, *, session_id: str | None = None, agent: str = ""
) -> Generator[RunnableConfig]:
    """A session for the runs in the `with` block, and the config to call them with.

    Args:
        config: Your own config, which is not changed.
        session_id: Names the session. Default: it is the `tao.session` that is open around the
            block, or else one named by the `thread_id` of the config.
        agent: Name of the agent.
    """
    handler = TaoCallbackHandler()
    run = enter_run(session_id, agent=agent, fallback_id=_thread_of(config))
    error: BaseException | None = None
    try:
        yield merge_configs(config, {"callbacks": [handler]})
    except BaseException as raised:
        error = raised
        raise
    finally:
        if run is not None:
            handler.open_calls.end_all(run.session, error)
            run.leave(error)


def _thread_of(config: RunnableConfig | None) -> str | None:
    if config is None:
        return None
    known = {**(config.get("metadata") or {}), **(config.get("configurable") or {})}
    return next((str(known[name]) for name in THREAD_NAMES if known.get(name)), None)
