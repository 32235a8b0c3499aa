"""The newest grants and refusals, for people who ask what has just happened."""

from collections import deque
from typing import Final

from tao_coordinator.core.effects import Grant, Reject
from tao_coordinator.service.receipts import receipt_document

DECISIONS_MAX: Final = 100


class DecisionLog:
    """Keeps the last `DECISIONS_MAX` decisions."""

    def __init__(self) -> None:
        self._decisions: deque[tuple[float, Grant | Reject]] = deque(maxlen=DECISIONS_MAX)

    def note(self, decision: Grant | Reject, now_s: float) -> None:
        """Remember a decision."""
        self._decisions.append((now_s, decision))

    def newest(self, now_s: float) -> list[dict[str, object]]:
        """All of them, newest first, as plain values: a grant with its receipt, or a refusal."""
        return [
            {"age_s": max(0.0, now_s - at_s), **_document(decision)}
            for at_s, decision in reversed(self._decisions)
        ]


def _document(decision: Grant | Reject) -> dict[str, object]:
    if isinstance(decision, Reject):
        return {
            "outcome": "rejected",
            "request_id": decision.request_id,
            "reason": decision.reason.value,
            "message": decision.message,
        }
    return {
        "outcome": "granted",
        "request_id": decision.request_id,
        "session_id": decision.session_id,
        "backend_id": decision.backend_id,
        **receipt_document(decision.receipt),
    }
