"""HTTP clients that are routed from the start, for libraries that take one.

The client of another library is reached through the HTTP client that it is given:

    # LangChain
    ChatOpenAI(http_client=tao.http_client(), http_async_client=tao.async_http_client())
    # smolagents
    OpenAIModel("m", client_kwargs={"http_client": tao.http_client()})
    # PydanticAI
    OpenAIProvider(base_url=url, http_client=tao.async_http_client())
    # LiteLLM
    litellm.client_session = tao.wrap(httpx.Client(timeout=600))

These are httpx2 clients with the settings of the openai and anthropic packages. Where other
settings are wanted, or the library still stands on httpx, make the client yourself and `wrap` it.
"""

from typing import TYPE_CHECKING, TypedDict

from tao_client._wrap import wrap

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 5.0
MOST_CONNECTIONS = 1000
MOST_IDLE_CONNECTIONS = 100


def http_client(*, timeout_s: float | None = TIMEOUT_S) -> "httpx2.Client":
    """An HTTP client whose model calls are scheduled, to give to another library.

    Without a coordinator it is a plain `httpx2.Client`. Close it as one.

    Args:
        timeout_s: Seconds that a reply may keep silent, holds included; a library that sets its own
            time-out for each request overrides it. None: no limit.
    """
    import httpx2

    return wrap(httpx2.Client(**_settings(timeout_s)))


def async_http_client(*, timeout_s: float | None = TIMEOUT_S) -> "httpx2.AsyncClient":
    """The same as `http_client`, for asynchronous callers.

    Args:
        timeout_s: Seconds that a reply may keep silent, holds included. None: no limit.
    """
    import httpx2

    return wrap(httpx2.AsyncClient(**_settings(timeout_s)))


class _Settings(TypedDict):
    timeout: "httpx2.Timeout"
    limits: "httpx2.Limits"
    follow_redirects: bool


def _settings(timeout_s: float | None) -> _Settings:
    import httpx2

    # httpx2's own 5 s and 100 connections are those of a web page, not of a model call.
    return {
        "timeout": httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
        "limits": httpx2.Limits(
            max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_IDLE_CONNECTIONS
        ),
        "follow_redirects": True,
    }
