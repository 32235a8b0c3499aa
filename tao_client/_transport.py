"""Transports that ask for a lease before each attempt of a model call.

Below the client's retries, so that each attempt asks anew and may go elsewhere, and below
everything that a client offers (copies with other options, raw responses, streams, parsing), so
that none of it is patched. Works for httpx2 (openai 3) and httpx (openai 2): the two have the same
classes, and ours are derived from those of the client at hand.
"""

import functools
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Self, cast

from tao_client import _connection
from tao_client._conversations import current_conversation
from tao_client._model_call import (
    ModelCall,
    Passage,
    read_model_call,
    routed_request,
    spend_timeout,
)
from tao_client.errors import HoldTimeoutError

if TYPE_CHECKING:
    import httpx2


class RoutingTransport:
    """What both kinds have in common."""

    def __init__(self, client: object, library: ModuleType) -> None:
        self._client = weakref.ref(client)
        self._library = library

    def open_passage(self, request: "httpx2.Request") -> tuple[ModelCall, Passage] | None:
        """None: the request passes untouched, and nothing has been spent on it."""
        connection = _connection.active()
        if connection is None or connection.coordinators.are_away:
            return None
        call = read_model_call(request)
        return None if call is None else (call, Passage(call, current_conversation()))

    def prepare(
        self, request: "httpx2.Request", call: ModelCall, passage: Passage
    ) -> "httpx2.Request | None":
        """The request to send under the lease; None when the call shall pass unscheduled."""
        affinity = passage.turn.affinity
        if affinity is None:
            passage.finish("completed")
            spend_timeout(request, passage.turn.held_s)
            return None
        routed = routed_request(request, call, affinity, passage.turn.headers)
        spend_timeout(routed, passage.turn.held_s)
        passage.sent()
        return routed

    def transport_for(self, url: "httpx2.URL", own: object) -> object:
        """The transport that the client would use for this URL (it may have proxies)."""
        choose = getattr(self._client(), "_transport_for_url", None)
        chosen = own if choose is None else choose(url)
        return chosen.inner if isinstance(chosen, SyncRouting | AsyncRouting) else chosen

    def may_go_its_own_way(
        self, error: Exception, request: "httpx2.Request", routed: "httpx2.Request | None"
    ) -> bool:
        """The lease's backend took no connection: nothing was sent, and elsewhere it may go well.

        The coordinator knows of it a second or two later; until then it is where the client's own
        retries would be sent again.
        """
        if routed is None or not isinstance(error, self._library.ConnectError):
            return False
        return (routed.url.host, routed.url.port) != (request.url.host, request.url.port)

    def time_out(self, error: HoldTimeoutError, request: "httpx2.Request") -> Exception:
        """The caller's own time-out error."""
        kind = cast("type[httpx2.ReadTimeout]", self._library.ReadTimeout)
        return kind(str(error), request=request)


class SyncRouting(RoutingTransport):
    """Stands in front of a client's transport."""

    def __init__(self, inner: object, client: object, library: ModuleType) -> None:
        super().__init__(client, library)
        self.inner = cast("httpx2.BaseTransport", inner)

    def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
        """Send one request, a model call under its lease."""
        opened = self.open_passage(request)
        if opened is None:
            return self.inner.handle_request(request)
        call, passage = opened
        routed = None
        try:
            passage.turn.acquire()
            routed = self.prepare(request, call, passage)
            if routed is None:
                return self.inner.handle_request(request)
            inner = cast("httpx2.BaseTransport", self.transport_for(routed.url, self.inner))
            response = inner.handle_request(routed)
            passage.answered(response)
        except HoldTimeoutError as error:
            passage.failed(error)
            raise self.time_out(error, request) from error
        except Exception as error:
            passage.failed(error)
            if self.may_go_its_own_way(error, request, routed):
                spend_timeout(request, passage.turn.held_s)
                return self.inner.handle_request(request)
            raise
        except BaseException as error:
            passage.failed(error)
            raise
        stream = cast("httpx2.SyncByteStream", response.stream)
        response.stream = sync_stream_type(self._library)(stream, passage)
        return response

    def close(self) -> None:
        """Close the client's own transport."""
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.inner.__exit__(exc_type, exc_value, traceback)


class AsyncRouting(RoutingTransport):
    """Stands in front of an asynchronous client's transport."""

    def __init__(self, inner: object, client: object, library: ModuleType) -> None:
        super().__init__(client, library)
        self.inner = cast("httpx2.AsyncBaseTransport", inner)

    async def handle_async_request(self, request: "httpx2.Request") -> "httpx2.Response":
        """Send one request, a model call under its lease."""
        opened = self.open_passage(request)
        if opened is None:
            return await self.inner.handle_async_request(request)
        call, passage = opened
        routed = None
        try:
            await passage.turn.acquire_async()
            routed = self.prepare(request, call, passage)
            if routed is None:
                return await self.inner.handle_async_request(request)
            inner = cast("httpx2.AsyncBaseTransport", self.transport_for(routed.url, self.inner))
            response = await inner.handle_async_request(routed)
            passage.answered(response)
        except HoldTimeoutError as error:
            passage.failed(error)
            raise self.time_out(error, request) from error
        except Exception as error:
            passage.failed(error)
            if self.may_go_its_own_way(error, request, routed):
                spend_timeout(request, passage.turn.held_s)
                return await self.inner.handle_async_request(request)
            raise
        except BaseException as error:
            passage.failed(error)
            raise
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = async_stream_type(self._library)(stream, passage)
        return response

    async def aclose(self) -> None:
        """Close the client's own transport."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.inner.__aexit__(exc_type, exc_value, traceback)


class SyncPassing:
    """A reply's bytes on their way; the lease goes back at the last one, or when dropped."""

    def __init__(self, inner: "httpx2.SyncByteStream", passage: Passage) -> None:
        self._inner = inner
        self._passage = passage

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._inner:
                if passed := self._passage.feed(chunk):
                    yield passed
            if rest := self._passage.ended():
                yield rest
        except BaseException as error:
            self._passage.failed(error)
            raise

    def close(self) -> None:
        """The caller wants no more of it."""
        try:
            self._inner.close()
        finally:
            self._passage.finish("cancelled")

    def __del__(self) -> None:
        self._passage.finish("cancelled")


class AsyncPassing:
    """The same for asynchronous clients."""

    def __init__(self, inner: "httpx2.AsyncByteStream", passage: Passage) -> None:
        self._inner = inner
        self._passage = passage

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._inner.__aiter__()
        try:
            async for chunk in chunks:
                if passed := self._passage.feed(chunk):
                    yield passed
            if rest := self._passage.ended():
                yield rest
        except BaseException as error:
            self._passage.failed(error)
            raise
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        """The caller wants no more of it."""
        try:
            await self._inner.aclose()
        finally:
            self._passage.finish("cancelled")

    def __del__(self) -> None:
        self._passage.finish("cancelled")


# The clients insist that a response's stream is of their own class, and so it must be made of that.


@functools.cache
def sync_stream_type(
    library: ModuleType,
) -> "Callable[[httpx2.SyncByteStream, Passage], httpx2.SyncByteStream]":
    """`SyncPassing` as a stream of this library."""
    return type("SyncPassing", (SyncPassing, library.SyncByteStream), {})


@functools.cache
def async_stream_type(
    library: ModuleType,
) -> "Callable[[httpx2.AsyncByteStream, Passage], httpx2.AsyncByteStream]":
    """`AsyncPassing` as a stream of this library."""
    return type("AsyncPassing", (AsyncPassing, library.AsyncByteStream), {})
