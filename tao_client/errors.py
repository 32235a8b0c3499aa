"""What the SDK may raise, and when.

    TaoError
    ├── ConfigurationError (ValueError)       a setting cannot work: of `connect`, `agent`
    ├── UnsupportedClientError (TypeError)    `wrap` was given something it cannot route
    └── HoldTimeoutError (TimeoutError)       a low-level turn was held longer than its own time-out

Nothing else is raised, and nothing at all because of the coordinator: with it dead, slow or wrong,
calls go where they went before. A wrapped client that is held longer than its own time-out raises
its own time-out error (`openai.APITimeoutError`), never one of these.
"""

__all__ = ["ConfigurationError", "HoldTimeoutError", "TaoError", "UnsupportedClientError"]


class TaoError(Exception):
    """Base of every error that the SDK raises itself."""


class ConfigurationError(TaoError, ValueError):
    """A setting cannot work. The message names the setting and the fix."""


class UnsupportedClientError(TaoError, TypeError):
    """`wrap` was given an object without an httpx or httpx2 client inside."""


class HoldTimeoutError(TaoError, TimeoutError):
    """A turn of `Session.turn` was held until its own `timeout_s` had passed.

    Attributes:
        held_s: How long it was held, seconds.
    """

    def __init__(self, held_s: float) -> None:
        super().__init__(f"the turn was held for {held_s:.1f} s, its whole time-out")
        self.held_s = held_s
