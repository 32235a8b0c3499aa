"""The wire to the coordinator: one client for threads, one per event loop, and the two drivers.

Everything here has a time limit and answers with a value: what goes wrong on the way is a
`NoAnswer`, never an exception. Only the caller's own interruptions (cancellation, Ctrl-C) pass
through. httpx2 is imported, with all that it imports itself, when a channel is made: it costs more
than the rest of the SDK. Never on a background thread: openai 2 looks at `sys.modules` and would
find it half imported, and a fork meanwhile would leave the child with import locks for ever.
"""

import codecs
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from tao_client import semconv
from tao_client._config import Config
from tao_client._lease import Ask, Grant, NoAnswer, Pause, Reply, TurnFlow, read_reply
from tao_client._timed_network import Deadline, TimedNetwork
from tao_client._version import __version__

if TYPE_CHECKING:
    import ssl

    import httpx2
    from anyio.lowlevel import RunVar

    _AsyncTransports = dict[str, httpx2.AsyncBaseTransport]

CLIENT_NAME = f"{semconv.SCOPE_NAME}/{__version__}"
LEASES_PATH = "/tao/v1/leases"
KEEP_ALIVE_S = 4.0
"""Shorter than the 5 s after which common servers close an idle connection: no race for it."""
LONGEST_ANSWER_BYTES = 65_536


def drive(flow: TurnFlow, channel: "SyncChannel") -> Grant | None:
    """Carry a turn's flow to its end on this thread."""
    try:
        action = next(flow)
        while True:
            if isinstance(action, Pause):
                time.sleep(action.pause_s)
                action = flow.send(None)
            else:
                action = flow.send(channel.ask(action))
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()


async def drive_async(flow: TurnFlow, channel: "AsyncChannel") -> Grant | None:
    """Carry a turn's flow to its end in this task (asyncio or trio)."""
    import anyio

    try:
        action = next(flow)
        while True:
            if isinstance(action, Pause):
                await anyio.sleep(action.pause_s)
                action = flow.send(None)
            else:
                action = flow.send(await channel.ask(action))
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()


class SyncChannel:
    """Speaks to the coordinator from any thread."""

    def __init__(self, config: Config) -> None:
        import httpx2

        # The last thing that a first connection imports: see the module for why it is done here.
        codecs.lookup("idna")
        self._config = config
        self._client = httpx2.Client(limits=_limits(), verify=_verification(config))
        # Beneath the client, which would log a line for each request; it has chosen the proxies.
        choose = self._client._transport_for_url
        self._transports = {one: choose(httpx2.URL(one)) for one in config.endpoints}
        self._deadline = Deadline()
        for transport in set(self._transports.values()):
            pool = cast("Any", transport)._pool
            pool._network_backend = TimedNetwork(pool._network_backend, self._deadline)
        self.is_closed = False

    def ask(self, action: Ask) -> Reply:
        """One lease request."""
        answer = self._exchange(
            action.endpoint,
            lambda limit_s: lease_request(self._config, action, limit_s),
            action.time_limit_s,
        )
        return answer if isinstance(answer, NoAnswer) else read_reply(*answer)

    def send(
        self,
        endpoint: str,
        method: str,
        path: str,
        body: bytes,
        time_limit_s: float,
        content_type: str = "application/json",
    ) -> int | None:
        """One request whose answer is only its status; None when there was none."""
        headers = {"content-type": content_type}
        url = endpoint + path
        answer = self._exchange(
            endpoint,
            lambda limit_s: _request(self._config, method, url, body, headers, limit_s),
            time_limit_s,
        )
        return None if isinstance(answer, NoAnswer) else answer[0]

    def close(self) -> None:
        """Close the connections; a later request is not answered."""
        self.is_closed = True
        self._client.close()

    def _exchange(
        self,
        endpoint: str,
        make_request: "Callable[[float], httpx2.Request]",
        time_limit_s: float,
    ) -> tuple[int, bytes] | NoAnswer:
        transport = self._transports[endpoint]
        self._deadline.at_s = deadline_s = time.monotonic() + time_limit_s
        is_retry = False
        while not self.is_closed:
            try:
                response = transport.handle_request(make_request(_left(deadline_s)))
                try:
                    return response.status_code, _read(response, deadline_s)
                finally:
                    response.close()
            except Exception as error:  # noqa: BLE001 - whatever fails here, the call goes on without
                if is_retry or not _may_try_again(error, deadline_s):
                    return _no_answer(error)
            is_retry = True
        return NoAnswer("disconnected", may_hold=False)


class AsyncChannel:
    """Speaks to the coordinator from event loops: one client per running loop, closed with it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._opened: RunVar[tuple[_AsyncTransports, AsyncGenerator[None]]] | None = None

    async def ask(self, action: Ask) -> Reply:
        """One lease request."""
        import anyio

        deadline_s = time.monotonic() + action.time_limit_s
        is_retry = False
        with anyio.move_on_after(action.time_limit_s):
            while True:
                try:
                    transport = (await self._transports())[action.endpoint]
                    request = lease_request(self._config, action, _left(deadline_s))
                    response = await transport.handle_async_request(request)
                    try:
                        return read_reply(response.status_code, await _read_async(response))
                    finally:
                        await response.aclose()
                except Exception as error:  # noqa: BLE001 - as above: the call goes on without
                    if is_retry or not _may_try_again(error, deadline_s):
                        return _no_answer(error)
                is_retry = True
        return NoAnswer("nothing heard in time")

    async def _transports(self) -> "_AsyncTransports":
        if self._opened is None:
            from anyio.lowlevel import RunVar

            self._opened = RunVar("tao_client")
        found = self._opened.get(None)
        if found is None:
            import httpx2

            client = httpx2.AsyncClient(limits=_limits(), verify=_verification(self._config))
            keeper = _close_with_loop(client)
            await anext(keeper)
            choose = client._transport_for_url
            found = ({one: choose(httpx2.URL(one)) for one in self._config.endpoints}, keeper)
            self._opened.set(found)
        return found[0]


async def _close_with_loop(client: "httpx2.AsyncClient") -> AsyncGenerator[None]:
    # An event loop that ends closes its unfinished asynchronous generators (asyncio.run and trio
    # both do): the one moment at which the client's idle connections can be closed properly.
    try:
        yield
    finally:
        await client.aclose()


def lease_request(config: Config, action: Ask, time_limit_s: float) -> "httpx2.Request":
    """The HTTP request of one `Ask`."""
    headers = {"content-type": "application/json"}
    if action.wait_s:
        headers["prefer"] = f"wait={action.wait_s}"
    body = action.request.to_json()
    url = action.endpoint + LEASES_PATH
    return _request(config, "POST", url, body, headers, time_limit_s)


def _request(
    config: Config,
    method: str,
    url: str,
    body: bytes,
    headers: dict[str, str],
    time_limit_s: float,
) -> "httpx2.Request":
    import httpx2

    return httpx2.Request(
        method,
        url,
        headers=_standing_headers(config) | headers,
        content=body,
        extensions={
            "timeout": dict.fromkeys(("connect", "read", "write", "pool"), time_limit_s),
        },
    )


def _read(response: "httpx2.Response", deadline_s: float) -> bytes:
    body = b""
    for chunk in cast("Iterable[bytes]", response.stream):
        if len(body) <= LONGEST_ANSWER_BYTES:
            body += chunk
        if time.monotonic() > deadline_s:
            break
    return body


async def _read_async(response: "httpx2.Response") -> bytes:
    body = b""
    async for chunk in cast("AsyncIterable[bytes]", response.stream):
        # Read on even when it is too long: trio warns of streams that are left in the middle, and
        # the caller's scope ends this in time.
        if len(body) <= LONGEST_ANSWER_BYTES:
            body += chunk
    return body


def _may_try_again(error: Exception, deadline_s: float) -> bool:
    # A kept-alive connection that the other side has just closed: every request here is idempotent,
    # so one fresh try is right.
    import httpx2

    broken = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
    return isinstance(error, broken) and time.monotonic() < deadline_s


def _left(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)


def _limits() -> "httpx2.Limits":
    import httpx2

    # One connection for each turn that is held at the same time, so no maximum: a wait for a free
    # connection would look like a coordinator that does not answer.
    return httpx2.Limits(
        max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE_S
    )


def _verification(config: Config) -> "ssl.SSLContext | bool":
    import ssl

    # Loading the authorities takes 30 ms. Without TLS a context that trusts nobody does as well.
    if any(endpoint.startswith("https:") for endpoint in config.endpoints):
        return True
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _standing_headers(config: Config) -> dict[str, str]:
    headers = {
        semconv.HEADER_PROTOCOL: semconv.PROTOCOL_VERSION,
        semconv.HEADER_CLIENT: CLIENT_NAME,
        "user-agent": CLIENT_NAME,
    }
    if config.api_key is not None:
        headers["authorization"] = f"Bearer {config.api_key}"
    return headers


def _no_answer(error: Exception) -> NoAnswer:
    import httpx2

    may_hold = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return NoAnswer(type(error).__name__, may_hold=may_hold)
