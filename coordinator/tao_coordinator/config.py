"""What the operator chose: frozen values, checked once, passed on explicitly.

Built in `cli/coordinator.py` from flags and `TAO_*` variables. Nothing here is read at import time.
"""

import math
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tao_client.semconv import DEFAULT_PORT
from tao_coordinator.errors import ConfigurationError

LOG_LEVELS = ("debug", "info", "warning", "error")

_BACKEND_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CAPACITY_TOKENS_MAX = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """One engine that turns may be sent to."""

    backend_id: str
    """1-128 characters of `[A-Za-z0-9._:-]`; the only id that appears in metric labels."""
    base_url: str
    """API root without `/v1`; handed out in every lease."""
    capacity_tokens: int | None = None
    """KV pool in tokens by the operator's word; `None`: what the engine reports."""
    capacity_scale: float = 1.0
    """Factor on the capacity, for engines that report it wrongly. (0, 100]."""

    def __post_init__(self) -> None:
        """Refuse what would fail later and less clearly."""
        if not _BACKEND_ID.fullmatch(self.backend_id):
            raise ConfigurationError(
                f"backend id {self.backend_id!r} must be 1-128 characters of [A-Za-z0-9._:-]"
            )
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f"backend {self.backend_id}: {self.base_url!r} is no http(s) URL with a host"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigurationError(
                f"backend {self.backend_id}: the URL is handed out to callers and must carry no"
                " credentials, query or fragment"
            )
        if self.capacity_tokens is not None and not (
            1 <= self.capacity_tokens <= _CAPACITY_TOKENS_MAX
        ):
            raise ConfigurationError(
                f"backend {self.backend_id}: --capacity must be a positive number of tokens,"
                f" got {self.capacity_tokens}"
            )
        if not (math.isfinite(self.capacity_scale) and 0.0 < self.capacity_scale <= 100.0):
            raise ConfigurationError(
                f"backend {self.backend_id}: --capacity-scale must be in (0, 100],"
                f" got {self.capacity_scale}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """One coordinator process."""

    backends: tuple[BackendConfig, ...]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0: a free one, printed at start."""
    policy: str = "tao"
    api_key: str | None = None
    """Required from every client when set; compared in constant time, never logged."""
    time_scale: float = 1.0
    """Only for simulated engines that run this many times faster than real ones."""
    log_level: str = "info"
    state_dir: str | None = None
    """Where learned durations are kept across restarts; `None`: nowhere."""

    def __post_init__(self) -> None:
        """Refuse what would fail later and less clearly."""
        if not self.backends:
            raise ConfigurationError(
                "no backend given: add --backend http://HOST:PORT (repeatable) or TAO_BACKENDS"
            )
        seen: set[str] = set()
        for backend in self.backends:
            if backend.backend_id in seen:
                raise ConfigurationError(
                    f"two backends are called {backend.backend_id!r}: name them with"
                    " --backend ID=URL"
                )
            seen.add(backend.backend_id)
        if not self.host:
            raise ConfigurationError("--host must not be empty")
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"--port must be in 0..65535, got {self.port}")
        if self.api_key is not None and not (
            self.api_key.isascii() and self.api_key.isprintable() and self.api_key.strip()
        ):
            raise ConfigurationError("--api-key must be printable ASCII and not empty")
        if not (math.isfinite(self.time_scale) and 0.0 < self.time_scale <= 10_000.0):
            raise ConfigurationError(f"--time-scale must be in (0, 10000], got {self.time_scale}")
        if self.log_level not in LOG_LEVELS:
            raise ConfigurationError(
                f"--log-level must be one of {', '.join(LOG_LEVELS)}, got {self.log_level!r}"
            )
