"""The wire to the coordinator: one client for threads, one per event loop, and the two drivers.

Everything here has a time limit and answers with a value: what goes wrong on the way is a
`NoAnswer`, never an exception. Only the caller's own interruptions (cancellation, Ctrl-C) pass
through. httpx2 is imported with the first channel: it costs more than the whole rest of the SDK.
Not on a background thread, because openai 2 looks at `sys.modules` and would find it half imported.
"""

import threading
import time
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from tao_client import semconv
from tao_client._config import Config
from tao_client._lease import Ask, Grant, NoAnswer, Pause, Reply, TurnFlow, read_reply
from tao_client._version import __version__

if TYPE_CHECKING:
    import httpx2
    from anyio.lowlevel import RunVar

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
        import httpx2  # loaded here, used below; see the module

        self._config = config
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    def ask(self, action: Ask) -> Reply:
        """One lease request."""
        deadline_s = time.monotonic() + action.time_limit_s
        headers = {"prefer": f"wait={action.wait_s}"} if action.wait_s else {}
        answer = self._exchange("POST", LEASES_PATH, action.request.to_json(), headers, deadline_s)
        return answer if isinstance(answer, NoAnswer) else read_reply(*answer)

    def send(self, method: str, path: str, body: bytes, time_limit_s: float) -> int | None:
        """One request whose answer is only its status; None when there was none."""
        answer = self._exchange(method, path, body, {}, time.monotonic() + time_limit_s)
        return None if isinstance(answer, NoAnswer) else answer[0]

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str], deadline_s: float
    ) -> tuple[int, bytes] | NoAnswer:
        import httpx2

        tries_left = 2
        while True:
            tries_left -= 1
            try:
                client = self._opened()
                request = client.build_request(
                    method, path, content=body, headers=headers, timeout=_left(deadline_s)
                )
                response = client.send(request, stream=True)
                try:
                    return response.status_code, _read(response.iter_raw(), deadline_s)
                finally:
                    response.close()
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
                # A kept-alive connection that the other side has just closed: the request is
                # idempotent, so one fresh try is right. A second failure means it.
                if not tries_left or time.monotonic() >= deadline_s:
                    return _no_answer(error)
            except Exception as error:  # noqa: BLE001 - whatever fails here, the call goes on without
                return _no_answer(error)

    def _opened(self) -> "httpx2.Client":
        client = self._client
        if client is None:
            import httpx2

            with self._lock:
                client = self._client
                if client is None:
                    client = self._client = httpx2.Client(
                        base_url=self._config.endpoint,
                        headers=standing_headers(self._config),
                        limits=_limits(),
                    )
        return client


class AsyncChannel:
    """Speaks to the coordinator from event loops: one client per running loop, closed with it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clients: RunVar[tuple[httpx2.AsyncClient, AsyncGenerator[None]]] | None = None

    async def ask(self, action: Ask) -> Reply:
        """One lease request."""
        import anyio
        import httpx2

        headers = {"prefer": f"wait={action.wait_s}"} if action.wait_s else {}
        deadline_s = time.monotonic() + action.time_limit_s
        tries_left = 2
        with anyio.move_on_after(action.time_limit_s):
            while True:
                tries_left -= 1
                try:
                    client = await self._opened()
                    response = await client.post(
                        LEASES_PATH,
                        content=action.request.to_json(),
                        headers=headers,
                        timeout=_left(deadline_s),
                    )
                    return read_reply(response.status_code, response.content)
                except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
                    if not tries_left or time.monotonic() >= deadline_s:
                        return _no_answer(error)
                except Exception as error:  # noqa: BLE001 - as above: the call goes on without
                    return _no_answer(error)
        return NoAnswer("nothing heard in time")

    async def _opened(self) -> "httpx2.AsyncClient":
        if self._clients is None:
            from anyio.lowlevel import RunVar

            self._clients = RunVar("tao_client")
        found = self._clients.get(None)
        if found is None:
            import httpx2

            client = httpx2.AsyncClient(
                base_url=self._config.endpoint,
                headers=standing_headers(self._config),
                limits=_limits(),
            )
            keeper = _close_with_loop(client)
            await anext(keeper)
            found = (client, keeper)
            self._clients.set(found)
        return found[0]


async def _close_with_loop(client: "httpx2.AsyncClient") -> AsyncGenerator[None]:
    # An event loop that ends closes its unfinished asynchronous generators (asyncio.run and trio
    # both do): the one moment at which the client's idle connections can be closed properly.
    try:
        yield
    finally:
        await client.aclose()


def _read(chunks: Iterator[bytes], deadline_s: float) -> bytes:
    body = b""
    for chunk in chunks:
        body += chunk
        if len(body) > LONGEST_ANSWER_BYTES or time.monotonic() > deadline_s:
            break
    return body


def _left(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)


def _limits() -> "httpx2.Limits":
    import httpx2

    # One connection for each turn that is held at the same time, so no maximum: a wait for a free
    # connection would look like a coordinator that does not answer.
    return httpx2.Limits(
        max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE_S
    )


def standing_headers(config: Config) -> dict[str, str]:
    """Headers of every request to the coordinator."""
    headers = {
        semconv.HEADER_PROTOCOL: semconv.PROTOCOL_VERSION,
        semconv.HEADER_CLIENT: CLIENT_NAME,
        "content-type": "application/json",
    }
    if config.api_key is not None:
        headers["authorization"] = f"Bearer {config.api_key}"
    return headers


def _no_answer(error: Exception) -> NoAnswer:
    import httpx2

    was_sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return NoAnswer(type(error).__name__, was_sent)
