"""The decision receipt on the wire: why a call runs where it runs, in one header.

`x-tao-receipt` is compact JSON with the names of the lease answer's `receipt` (`docs/protocol.md`).
"""

from typing import Final

import orjson

from tao_coordinator.core.effects import Grant, Receipt
from tao_coordinator.errors import RequestError

NAME: Final = "x-tao-receipt"
HEADER: Final = NAME.encode()

_PATHS: Final = {
    "resident": "bypass",
    "reload": "bypass",
    "parallel": "bypass",
    "pass-through": "bypass",
    "planned": "planned",
    "alone": "planned",
    "forced": "forced",
}


def path_of(receipt: Receipt) -> str:
    """By which way a lease was granted: bypass, planned, forced, or a policy's own rule."""
    return _PATHS.get(receipt.reason, "policy" if receipt.plan_id is None else "planned")


def receipt_document(receipt: Receipt) -> dict[str, object]:
    """The receipt as the lease answer's body tells it."""
    return {
        "policy": receipt.policy,
        "path": path_of(receipt),
        "reason": receipt.reason,
        "hold_s": receipt.hold_s,
        "cache_credit_tokens": receipt.cache_credit_tokens,
        "plan_id": receipt.plan_id,
    }


def granted_header(grant: Grant, attempt: int = 1) -> bytes:
    """Of a call under a lease; `attempt` counts the leases that this call took."""
    document = receipt_document(grant.receipt)
    document |= {
        "hold_s": round(grant.receipt.hold_s, 3),
        "backend_id": grant.backend_id,
        "lease_id": grant.lease_id,
    }
    if attempt > 1:
        document["attempt"] = attempt
    return orjson.dumps(document)


def header(path: str, **details: object) -> bytes:
    """Of an answer without a lease: `held`, `rejected`, `fail-open`."""
    return orjson.dumps({"path": path, **details})


def rejected_header(error: RequestError) -> bytes:
    """Of a refusal."""
    return header("rejected", reason=error.type)
