"""The HTTP interface of one modelled backend."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from importlib.metadata import version

import anyio
import anyio.lowlevel
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tao_client import semconv
from tao_coordinator.service.sim_backend.driver import BackendDriver, Generation
from tao_coordinator.service.sim_backend.metrics import build_registry
from tao_coordinator.service.sim_backend.rendering import TokenRuler
from tao_coordinator.service.sim_backend.replies import Reply, plan_reply
from tao_coordinator.service.sim_backend.requests import (
    ApiError,
    CompletionRequest,
    bad_request,
    parse_chat,
    parse_completion,
)
from tao_coordinator.service.sim_backend.settings import WAITING_MAX, SimBackendSettings
from tao_coordinator.service.sim_backend.wire import (
    ChunkWriter,
    completion_body,
    error_body,
    error_event,
    json_response,
)
from tao_coordinator.simulation.request import RequestTooLargeError, SimRequest


def build_app(settings: SimBackendSettings, driver: BackendDriver) -> Starlette:
    """Return the application; it runs the driver while it is up."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await (
            anyio.lowlevel.checkpoint()
        )  # loads anyio's backend now, or the first stream waits for it
        async with asyncio.TaskGroup() as group:
            group.create_task(driver.run(), name="sim-backend driver")
            try:
                yield
            finally:
                driver.stop()

    routes = _Routes(settings, driver)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/completions", routes.completion, methods=["POST"]),
            Route("/v1/models", routes.models),
            Route("/health", routes.health),
            Route("/version", routes.version),
            Route("/metrics", routes.metrics),
            Route("/sim/requests", routes.finished_requests),
        ],
        exception_handlers={ApiError: _on_api_error, HTTPException: _on_http_error},
        lifespan=lifespan,
    )


class _Routes:
    """The handlers of one backend."""

    def __init__(self, settings: SimBackendSettings, driver: BackendDriver) -> None:
        self._settings = settings
        self._driver = driver
        self._ruler = TokenRuler(settings.chars_per_token, settings.block_size)
        self._registry = build_registry(driver, settings.model)
        self._created = int(time.time())

    async def chat(self, request: Request) -> Response:
        return await self._complete(request, parse_chat)

    async def completion(self, request: Request) -> Response:
        return await self._complete(request, parse_completion)

    async def models(self, _: Request) -> Response:
        entry = {
            "id": self._settings.model,
            "object": "model",
            "created": self._created,
            "owned_by": "tao-sim",
            "root": self._settings.constants.name,
            "parent": None,
            "max_model_len": self._settings.context_tokens_max,
        }
        return json_response({"object": "list", "data": [entry]})

    async def health(self, _: Request) -> Response:
        return Response(status_code=503 if self._driver.stopped else 200)

    async def version(self, _: Request) -> Response:
        return json_response({"version": f"tao-sim-{version('tao-client')}"})

    async def metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def finished_requests(self, request: Request) -> Response:
        text = request.query_params.get("since", "0")
        try:
            since = int(text)
        except ValueError:
            raise bad_request(f"since: must be a whole number, not {text!r}") from None
        records = self._driver.records_since(max(0, since))
        return json_response([record.as_dict() for record in records])

    async def _complete(
        self, http: Request, parse: Callable[[bytes], CompletionRequest]
    ) -> Response:
        try:
            body = await _read_body(http, self._settings.body_bytes_max)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        request = parse(body)
        reply, generation = self._start(http, request)
        completion_id = f"{'chatcmpl' if request.chat else 'cmpl'}-{generation.request_id}"
        created = int(time.time())
        if request.stream:
            generation.streaming = True
            writer = ChunkWriter(
                completion_id, created, self._settings.model, reply, chat=request.chat
            )
            return _StreamedReply(
                _stream(generation, writer, include_usage=request.include_usage),
                lambda: self._driver.abort(generation),
            )
        try:
            await _end_or_disconnect(generation, http)
        finally:
            self._driver.abort(generation)
        if not generation.finished:
            raise _unavailable()
        return json_response(
            completion_body(
                completion_id, created, self._settings.model, reply, generation, chat=request.chat
            )
        )

    def _start(self, http: Request, request: CompletionRequest) -> tuple[Reply, Generation]:
        """Check a request against the engine, plan its reply and hand it over."""
        settings, ruler = self._settings, self._ruler
        if request.model is not None and request.model != settings.model:
            raise ApiError(404, "NotFoundError", f"The model `{request.model}` does not exist.")
        if self._driver.stopped or self._driver.num_open >= WAITING_MAX:
            raise _unavailable()
        prompt = ruler.pad(request.prompt)
        prompt_tokens = ruler.tokens_in(len(prompt))
        room = settings.context_tokens_max - prompt_tokens
        wanted = request.tokens_max if request.tokens_max is not None else 1
        if wanted > room:
            raise bad_request(
                f"This model's maximum context length is {settings.context_tokens_max} tokens. "
                f"However, you requested at least {prompt_tokens + wanted} tokens ({prompt_tokens} "
                f"in the messages, {wanted} in the completion). Please reduce the length of the "
                "messages or completion."
            )
        turn = settings.scripts.turn_for(request.messages)
        reply = plan_reply(prompt, turn, request.tokens_max or room, ruler, chat=request.chat)
        total_tokens = prompt_tokens + reply.output_tokens
        hashes = ruler.block_hashes(prompt + reply.text, total_tokens)
        in_prompt = prompt_tokens // settings.block_size
        model_id = self._driver.next_id()
        sim_request = SimRequest(
            request_id=model_id,
            prompt_tokens=prompt_tokens,
            output_tokens=reply.output_tokens,
            block_hashes=hashes[:in_prompt],
            output_block_hashes=hashes[in_prompt:],
        )
        try:
            generation = self._driver.submit(
                sim_request,
                request_id=http.headers.get("x-request-id") or f"sim-{model_id}",
                session_id=http.headers.get(semconv.HEADER_SESSION),
                finish_reason=reply.finish_reason,
            )
        except RequestTooLargeError as error:
            raise bad_request(str(error)) from error
        return reply, generation


class _StreamedReply(StreamingResponse):
    """A stream that tells when it is over, however it ends and even if it never began."""

    def __init__(self, events: AsyncGenerator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _stream(
    generation: Generation, writer: ChunkWriter, *, include_usage: bool
) -> AsyncGenerator[bytes]:
    ended = False
    while not ended:
        ended = generation.finished or generation.failed
        for chunk in writer.chunks(generation):
            yield chunk
        if not ended:
            await generation.wait_for_change()
    if generation.finished:
        for chunk in writer.last_chunks(generation, include_usage=include_usage):
            yield chunk
    else:
        yield error_event(_unavailable())


def _unavailable() -> ApiError:
    return ApiError(503, "ServiceUnavailableError", "The backend takes no more requests.")


async def _read_body(request: Request, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise _too_large(bytes_max)
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
    return b"".join(parts)


def _too_large(bytes_max: int) -> ApiError:
    message = f"The body is larger than {bytes_max} bytes."
    return ApiError(413, "RequestEntityTooLargeError", message)


async def _end_or_disconnect(generation: Generation, request: Request) -> None:
    """Wait until the reply is complete, the backend gives up or the client goes away."""
    end = asyncio.ensure_future(generation.wait_for_end())
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait((end, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        end.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return json_response(error_body(error), error.status)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
    return json_response(
        error_body(ApiError(error.status_code, kind, error.detail)), error.status_code
    )
