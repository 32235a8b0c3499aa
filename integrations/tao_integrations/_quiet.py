"""Keeping what fails in the SDK, or in an integration, from the agent that runs on it."""

import logging
from types import TracebackType

import tao_client as tao

logger = logging.getLogger("tao_integrations")

_warnings_given: set[str] = set()


class quiet:
    """Swallows and logs what fails inside; the first of each kind is a warning."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Swallow exceptions, but neither Ctrl-C nor an exit."""
        if not isinstance(exc, Exception):
            return False
        warn_once(f"could not {self._purpose}; the agent goes on without", exc)
        return True


def warn_once(message: str, error: Exception | None = None) -> None:
    """Log a warning, each message once per process."""
    if message not in _warnings_given:
        _warnings_given.add(message)
        logger.warning(message, exc_info=error)


def leave(entered: tao.Session | tao.ToolCall | tao.Turn, error: BaseException | None) -> None:
    """Leave what was entered, with the error that ended it, if any."""
    with quiet("tell the end of a session, turn or tool call"):
        entered.__exit__(None if error is None else type(error), error, None)
