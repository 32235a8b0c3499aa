"""The lease protocol's endpoints (`docs/protocol.md`)."""

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tao_coordinator.core.effects import Grant, Hold, Reject
from tao_coordinator.core.events import SessionEnded, TurnRequested
from tao_coordinator.errors import RequestError
from tao_coordinator.service.bodies import read_json_body, wait_for_disconnect
from tao_coordinator.service.replies import (
    LEASES_PATH,
    grant_response,
    hold_response,
    no_content,
    reject_error,
    shutting_down,
)
from tao_coordinator.service.runtime import HoldEnd, Runtime
from tao_coordinator.service.schemas import (
    ask_from_body,
    path_id,
    release_from_body,
    wait_s_from_prefer,
)


class LeaseRoutes:
    """Ask, keep, give back."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def routes(self) -> list[Route]:
        """The busiest first: the router tries them in order."""
        return [
            Route(LEASES_PATH, self.ask, methods=["POST"]),
            Route("/tao/v1/leases/{lease_id}/release", self.release, methods=["POST"]),
            Route("/tao/v1/leases/{lease_id}/renew", self.renew, methods=["POST"]),
            Route("/tao/v1/leases/{request_id}", self.abandon, methods=["DELETE"]),
            Route("/tao/v1/sessions/{session_id}/end", self.end_session, methods=["POST"]),
        ]

    async def ask(self, request: Request) -> Response:
        """`POST /tao/v1/leases`: a lease, a place in the queue, or a refusal."""
        turn, released = ask_from_body(await read_json_body(request))
        if self._runtime.is_closing:
            raise shutting_down()
        answer = self._runtime.request_turn(turn, released)
        if isinstance(answer, Grant):
            return grant_response(answer, turn.session_id)
        if isinstance(answer, Reject):
            raise reject_error(answer)
        wait_s = wait_s_from_prefer(request.headers.get("prefer", ""))
        if wait_s > 0.0:
            return await self._long_poll(request, turn, wait_s)
        self._runtime.end_poll(turn.request_id)
        return hold_response(answer)

    async def release(self, request: Request) -> Response:
        """`POST /tao/v1/leases/{lease_id}/release`."""
        lease_id = path_id("lease_id", request.path_params["lease_id"])
        self._runtime.release(release_from_body(lease_id, await read_json_body(request)))
        return no_content()

    async def renew(self, request: Request) -> Response:
        """`POST /tao/v1/leases/{lease_id}/renew`."""
        if not self._runtime.renew(path_id("lease_id", request.path_params["lease_id"])):
            raise RequestError(404, "unknown_lease", "no such lease, or it is over")
        return no_content()

    async def abandon(self, request: Request) -> Response:
        """`DELETE /tao/v1/leases/{request_id}`."""
        self._runtime.abandon(path_id("request_id", request.path_params["request_id"]))
        return no_content()

    async def end_session(self, request: Request) -> Response:
        """`POST /tao/v1/sessions/{session_id}/end`."""
        session_id = path_id("session_id", request.path_params["session_id"])
        self._runtime.dispatch((SessionEnded(session_id=session_id),))
        return no_content()

    async def _long_poll(self, request: Request, turn: TurnRequested, wait_s: float) -> Response:
        watcher = asyncio.create_task(wait_for_disconnect(request))
        try:
            answer = await self._runtime.hold(turn.request_id, wait_s, watcher)
        finally:
            # Not awaited: a cancellation of this request could not be told from the watcher's own.
            watcher.cancel()
        if answer is HoldEnd.STILL_HELD:
            # Ask once more, so that position and estimate are those of now.
            answer = self._runtime.request_turn(turn)
            if isinstance(answer, Hold):
                self._runtime.end_poll(turn.request_id)
                return hold_response(answer)
        if isinstance(answer, Grant):
            return grant_response(answer, turn.session_id)
        if isinstance(answer, Reject):
            raise reject_error(answer)
        if answer is HoldEnd.SHUTTING_DOWN:
            raise shutting_down()
        if answer is HoldEnd.ABANDONED:
            raise RequestError(409, "abandoned", "this turn was taken back by its caller")
        raise ClientDisconnect
