"""What the operator is told: the engine's warnings, each once, in one actionable line.

The engine repeats a warning as long as its cause lasts. Health is a state, so it is logged whenever
it changes; what happens again is logged again; anything else once per code and subject.
"""

import logging
from typing import Final

from tao_coordinator.core.effects import Warn

_log = logging.getLogger(__name__)

TOLD_MAX: Final = 10_000
"""Distinct warnings remembered; beyond it the memory starts afresh and one may be told again."""

_HEALTH: dict[str, tuple[int, str]] = {
    "backend_healthy": (logging.INFO, "%s: %s"),
    "backend_silent": (
        logging.WARNING,
        "%s does not answer: %s (is its URL right?); turns go elsewhere until it does",
    ),
    "backend_lost": (
        logging.WARNING,
        "%s stopped answering: %s; its sessions are placed elsewhere",
    ),
}


_EVENTS: Final = frozenset({"backend_restarted"})
"""Told every time: each is news."""


class OperatorLog:
    """Logs warnings without repeating them."""

    def __init__(self) -> None:
        self._health: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    def tell(self, warn: Warn) -> None:
        """Log `warn` unless the operator knows it already."""
        health = _HEALTH.get(warn.code)
        if health is not None:
            if self._health.get(warn.subject) != warn.code:
                self._health[warn.subject] = warn.code
                level, text = health
                _log.log(level, text, f"backend {warn.subject}", warn.message)
            return
        if warn.code in _EVENTS:
            _log.warning("backend %s %s", warn.subject, warn.message)
            return
        key = (warn.code, warn.subject)
        if key in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(key)
        _log.warning("%s: %s [%s]", warn.subject, warn.message, warn.code)
