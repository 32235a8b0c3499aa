"""tao-client: the scheduler between your LLM agents and your GPUs, from the agent's side.

    import tao_client as tao

    tao.connect("http://coordinator:8700")      # or TAO_ENDPOINT
    client = tao.wrap(OpenAI())                 # every call goes where its session's cache is

    @tao.tool(timeout_s=60)                     # every call of it is told to the coordinator
    def bash(command: str) -> str: ...

    with tao.session("swe-17"):                 # one run of the agent; or @tao.agent on its loop
        run_agent(client, bash)

With the coordinator dead, slow or wrong, calls go where they went before; with `TAO_DISABLED=1` the
SDK does nothing at all. Layers, each knowing only those above it: `semconv`, `errors`; `_config`,
`_events`, `_ancestry`, `_commands`, `_span_reading`, `_breaker`, `_coordinators`, `_lease`
(no I/O); `_timed_network`, `_channel`, `_courier`, `_emission`, `_otlp` (background);
`_connection` (one per process); `_spans`, `_session`, `_conversations`, `_tools`, `_agent`,
`_turn`; `_usage`, `_model_call`, `_transport`, `_wrap`, `_http_client`; `_span_processor`.
"""

import typing

from tao_client._agent import agent as agent
from tao_client._connection import connect as connect
from tao_client._connection import disconnect as disconnect
from tao_client._http_client import async_http_client as async_http_client
from tao_client._http_client import http_client as http_client
from tao_client._lease import Affinity as Affinity
from tao_client._lease import HoldInfo as HoldInfo
from tao_client._lease import Receipt as Receipt
from tao_client._session import Session as Session
from tao_client._session import current_session as current_session
from tao_client._session import session as session
from tao_client._tools import ToolCall as ToolCall
from tao_client._tools import tool as tool
from tao_client._turn import Turn as Turn
from tao_client._version import __version__ as __version__
from tao_client._wrap import wrap as wrap
from tao_client.errors import ConfigurationError as ConfigurationError
from tao_client.errors import HoldTimeoutError as HoldTimeoutError
from tao_client.errors import TaoError as TaoError
from tao_client.errors import UnsupportedClientError as UnsupportedClientError

if typing.TYPE_CHECKING:
    from tao_client._span_processor import SpanProcessor as SpanProcessor
else:

    def __getattr__(name: str) -> object:
        # Loaded when it is asked for, because it takes OpenTelemetry's SDK along.
        if name == "SpanProcessor":
            from tao_client._span_processor import SpanProcessor

            return SpanProcessor
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "SpanProcessor"]
