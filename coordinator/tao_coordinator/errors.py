"""Errors of the coordinator that a caller may want to tell apart.

Bad arguments of internal functions are plain `ValueError`; refusals of a turn are values
(`core.effects.Reject`), never exceptions.
"""


class CoordinatorError(Exception):
    """Root of everything the coordinator raises on purpose; the message is one line."""


class ConfigurationError(CoordinatorError, ValueError):
    """A flag, an environment variable or a combination of them makes no sense."""


class EngineError(CoordinatorError):
    """The decision engine failed or broke its contract; the turn gets no answer from it."""


class MalformedPage(CoordinatorError):
    """A backend answered with something that its protocol does not allow."""


class RequestError(CoordinatorError):
    """A request is answered with one error of the wire protocol.

    Attributes:
        status: HTTP status code.
        type: Machine-readable error type, `docs/protocol.md` section Errors.
        message: One line for a person; never repeats bodies or keys.
        retry_after_s: Seconds after which asking again may help; `None` where it does not.
    """

    def __init__(
        self, status: int, type: str, message: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.retry_after_s = retry_after_s


class MalformedRequest(RequestError):
    """The body or the path does not follow the protocol; the message names the field."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "malformed_request", message)
