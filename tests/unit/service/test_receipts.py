"""The receipt's header."""

import json

import pytest
from service_fakes import grant

from tao_coordinator.core.effects import Receipt
from tao_coordinator.errors import RequestError
from tao_coordinator.service import receipts


def receipt(reason: str, plan_id: int | None = None) -> Receipt:
    return Receipt(policy="p", reason=reason, hold_s=0.0, cache_credit_tokens=0, plan_id=plan_id)


@pytest.mark.parametrize(
    ("reason", "plan_id", "path"),
    [
        ("resident", None, "bypass"),
        ("reload", None, "bypass"),
        ("parallel", None, "bypass"),
        ("pass-through", None, "bypass"),
        ("planned", 7, "planned"),
        ("planned", None, "planned"),
        ("alone", None, "planned"),
        ("forced", None, "forced"),
        ("sticky", None, "policy"),
        ("window", 3, "planned"),
    ],
)
def test_path_says_how_the_lease_came(reason: str, plan_id: int | None, path: str) -> None:
    assert receipts.path_of(receipt(reason, plan_id)) == path


def test_header_is_one_line_of_json() -> None:
    header = receipts.granted_header(grant("r", hold_s=1.23456), attempt=2)
    assert b"\n" not in header
    assert json.loads(header) == {
        "policy": "fake",
        "path": "bypass",
        "reason": "resident",
        "hold_s": 1.235,
        "cache_credit_tokens": 7,
        "plan_id": None,
        "backend_id": "gpu-0",
        "lease_id": "lease-r",
        "attempt": 2,
    }
    refused = receipts.rejected_header(RequestError(429, "queue_full", "because"))
    assert json.loads(refused) == {"path": "rejected", "reason": "queue_full"}
