"""Bodies and errors of the wire: one place that turns values into HTTP responses."""

import math
from collections.abc import Mapping
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import Scope

from tao_client import semconv
from tao_coordinator.adapters import gateways
from tao_coordinator.adapters.events import otlp
from tao_coordinator.core.effects import Grant, Hold, Reject, RejectReason
from tao_coordinator.errors import RequestError
from tao_coordinator.service import receipts
from tao_coordinator.service.relay import dialects

LEASES_PATH: Final = "/tao/v1/leases"

STATUS_OF_REJECT: Final = {
    RejectReason.MODEL_NOT_SERVED: 404,
    RejectReason.TOO_LARGE: 413,
    RejectReason.QUEUE_FULL: 429,
    RejectReason.WAITED_TOO_LONG: 429,
    RejectReason.NO_HEALTHY_BACKEND: 503,
    RejectReason.SESSION_ENDED: 409,
    RejectReason.ABANDONED: 409,
    RejectReason.LEASE_EXPIRED: 409,
}


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Any value that orjson takes, dataclasses included."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def no_content() -> Response:
    """204."""
    return Response(status_code=204)


def error_response(scope: Scope, error: RequestError) -> Response:
    """The one error shape; on OTLP's paths OTLP's own, on the relay's that of the model's API."""
    path: str = scope["path"]
    response_headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        response_headers["retry-after"] = str(math.ceil(error.retry_after_s))
    if error.status == 401:
        response_headers["www-authenticate"] = "Bearer"
    if path in otlp.PATHS:
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        reply = otlp.error_reply(content_type, error.status, error.message)
        response_headers["content-type"] = reply.content_type
        return Response(reply.body, reply.status, headers=response_headers)
    body: dict[str, object] = {"type": error.type, "message": error.message}
    if error.retry_after_s is not None:
        body["retry_after_s"] = error.retry_after_s
    document: object = {"error": body}
    if dialects.is_relayed(path):
        document = dialects.error_document(dialects.dialect_of(path), error)
    if dialects.is_relayed(path) or path == LEASES_PATH:
        response_headers[receipts.NAME] = receipts.rejected_header(error).decode()
    return Response(
        orjson.dumps(document),
        error.status,
        headers=response_headers,
        media_type="application/json",
    )


def affinity_headers(grant: Grant, session_id: str) -> dict[str, str]:
    """What goes along with the model call, whoever sends it: the caller or the relay."""
    headers = {semconv.HEADER_SESSION: session_id}
    for name, value in grant.affinity_headers:
        if name == semconv.HEADER_SESSION.lower():
            del headers[semconv.HEADER_SESSION]  # to this gateway it is the pin itself
        headers[name] = value.replace(gateways.SESSION, session_id)
    return headers


def grant_response(grant: Grant, session_id: str) -> Response:
    """200: the lease, where to go, and why."""
    affinity: dict[str, object] = {
        "backend_id": grant.backend_id,
        "base_url": grant.base_url,
        "headers": affinity_headers(grant, session_id),
        "strength": grant.strength,
    }
    if grant.served_by_names:
        affinity["served_by_headers"] = grant.served_by_names
    return json_response(
        {
            "lease_id": grant.lease_id,
            "start_within_s": grant.start_within_s,
            "affinity": affinity,
            "receipt": receipts.receipt_document(grant.receipt),
        },
        headers={receipts.NAME: receipts.granted_header(grant).decode()},
    )


def hold_response(hold: Hold) -> Response:
    """202: still held, ask again at once."""
    return json_response(
        {
            "queue_position": hold.queue_position,
            "estimated_wait_s": hold.estimated_wait_s,
            "retry_after_s": 0,
        },
        202,
        {receipts.NAME: receipts.header("held").decode()},
    )


def reject_error(reject: Reject) -> RequestError:
    """The engine's refusal as an error of the wire."""
    return RequestError(
        STATUS_OF_REJECT[reject.reason], reject.reason.value, reject.message, reject.retry_after_s
    )


def shutting_down() -> RequestError:
    """What whoever asks for a lease hears from now on."""
    return RequestError(503, "shutting_down", "the coordinator is shutting down", 1.0)
