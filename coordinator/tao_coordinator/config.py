"""What the operator chose: frozen values, checked once, passed on explicitly.

Built in `cli/coordinator.py` from flags and `TAO_*` variables. Nothing here is read at import time.
"""

import math
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from tao_client.semconv import DEFAULT_PORT
from tao_coordinator.errors import ConfigurationError

LOG_LEVELS = ("debug", "info", "warning", "error")

ENGINE_KINDS = ("auto", "vllm", "sglang", "tensorrt-llm", "dynamo", "openai")
"""What a backend may be said to be; `auto`: told from what it answers, `openai`: no metrics."""
GATEWAYS = (
    "llm-d",
    "aibrix",
    "dynamo",
    "envoy",
    "envoy-stateful-session",
    "smg",
    "litellm",
    "header",
    "session-only",
)
"""Gateways that a backend may stand behind (`adapters/gateways.py`)."""

JOURNAL_BYTES_MAX_MIN = 1 << 20

_BACKEND_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_TARGET = re.compile(r"[\x21-\x7e]{1,256}")
_RANKS_MAX = 1_024
_CAPACITY_TOKENS_MAX = 10**12
_RELOAD_TOKENS_PER_S_MAX = 1e12


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
    host_tier_tokens: int | None = None
    """KV tokens that its host memory keeps (vLLM's offloading connector, HiCache, LMCache), those
    that the pool holds too included; `None`: what is evicted is lost."""
    host_reload_tokens_per_s: float | None = None
    """KV tokens a second from there to the pool; needed with `host_tier_tokens`."""
    engine_kind: str = "auto"
    """One of `ENGINE_KINDS`."""
    data_parallel_rank: int | None = None
    """Rank behind `base_url` that this backend is; `None`: the URL has one KV cache."""
    metrics_url: str | None = None
    """Root of the metrics where it is not `base_url`: a Dynamo worker's system port, or the engine
    behind a gateway."""
    gateway: str | None = None
    """One of `GATEWAYS` where `base_url` is a gateway that has to be told the engine."""
    gateway_target: str | None = None
    """The engine in the gateway's own words: pod, `ip:port`, instance id, index, header value."""
    gateway_header: str | None = None
    """Header that the gateway reads, where the operator names it (`adapters/gateways.py`)."""
    kv_events_url: str | None = None
    """Where the engine publishes KV events (ZeroMQ, `tcp://HOST:PORT`); `None`: not listened to."""
    kv_events_replay_url: str | None = None
    """Where it answers requests for lost ones."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer credential that the coordinator itself shows this backend (relay, polls); never handed
    out in a lease."""
    redirect: bool = False
    """Relayed calls that are granted here are answered with 307 to `base_url` instead."""

    @property
    def engine(self) -> tuple[object, ...]:
        """What makes two backends the same KV cache."""
        return (self.base_url, self.data_parallel_rank, self.gateway, self.gateway_target)

    def __post_init__(self) -> None:
        """Refuse what would fail later and less clearly."""
        self._check_names()
        self._check_urls()
        self._check_capacity()
        self._check_host_tier()

    def _check_names(self) -> None:
        if not _BACKEND_ID.fullmatch(self.backend_id):
            raise ConfigurationError(
                f"backend id {self.backend_id!r} must be 1-128 characters of [A-Za-z0-9._:-]"
            )
        if self.engine_kind not in ENGINE_KINDS:
            raise ConfigurationError(
                f"backend {self.backend_id}: engine_kind (--engine) must be one of"
                f" {', '.join(ENGINE_KINDS)}, got {self.engine_kind!r}"
            )
        rank = self.data_parallel_rank
        if rank is not None and not 0 <= rank < _RANKS_MAX:
            raise ConfigurationError(
                f"backend {self.backend_id}: data_parallel_rank must be in 0..{_RANKS_MAX - 1},"
                f" got {rank}"
            )
        if self.gateway is not None and self.gateway not in GATEWAYS:
            raise ConfigurationError(
                f"backend {self.backend_id}: gateway must be one of {', '.join(GATEWAYS)},"
                f" got {self.gateway!r}"
            )
        if self.gateway is None and (self.gateway_target or self.gateway_header):
            raise ConfigurationError(
                f"backend {self.backend_id}: gateway_target and gateway_header need gateway"
            )
        if self.gateway_header is not None and not _HEADER_NAME.fullmatch(self.gateway_header):
            raise ConfigurationError(
                f"backend {self.backend_id}: gateway_header must be the name of an HTTP header"
            )
        if self.gateway_target is not None and not _TARGET.fullmatch(self.gateway_target):
            raise ConfigurationError(
                f"backend {self.backend_id}: gateway_target must be 1-256 printable ASCII"
                " characters without blanks"
            )

    def _check_urls(self) -> None:
        self._check_http("base_url", self.base_url)
        if self.metrics_url is not None:
            self._check_http("metrics_url", self.metrics_url)
        for name in ("kv_events_url", "kv_events_replay_url"):
            url: str | None = getattr(self, name)
            if url is not None and not re.fullmatch(r"(tcp|ipc)://\S{1,512}", url):
                raise ConfigurationError(
                    f"backend {self.backend_id}: {name} must be tcp://HOST:PORT or ipc://PATH,"
                    f" got {url!r}"
                )
        if self.kv_events_replay_url is not None and self.kv_events_url is None:
            raise ConfigurationError(
                f"backend {self.backend_id}: kv_events_replay_url needs kv_events_url"
            )

    def _check_http(self, name: str, url: str) -> None:
        try:
            parts = urlsplit(url)
            has_port = parts.port != 0
        except ValueError as error:
            raise ConfigurationError(f"backend {self.backend_id}: {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
            raise ConfigurationError(
                f"backend {self.backend_id}: {name} {url!r} is no http(s) URL with a host"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigurationError(
                f"backend {self.backend_id}: {name} is handed out to callers and must carry no"
                " credentials, query or fragment"
            )

    def _check_capacity(self) -> None:
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
        if self.api_key is not None and not is_header_value(self.api_key):
            raise ConfigurationError(
                f"backend {self.backend_id}: --backend-api-key must be printable ASCII, not empty"
            )
        if self.redirect and self.api_key is not None:
            raise ConfigurationError(
                f"backend {self.backend_id}: --redirect sends callers there themselves, and"
                " --backend-api-key is never handed out: choose one"
            )
        if self.redirect and (self.gateway is not None or self.data_parallel_rank is not None):
            raise ConfigurationError(
                f"backend {self.backend_id}: --redirect cannot tell a gateway, or a rank, which"
                " engine is meant; leave it out and calls are relayed"
            )

    def _check_host_tier(self) -> None:
        tokens, rate = self.host_tier_tokens, self.host_reload_tokens_per_s
        if (tokens is None) != (rate is None):
            raise ConfigurationError(
                f"backend {self.backend_id}: --host-tier-tokens and --host-reload-tokens-per-s"
                " go together: how much the host keeps, and how fast it comes back"
            )
        if tokens is not None and not 1 <= tokens <= _CAPACITY_TOKENS_MAX:
            raise ConfigurationError(
                f"backend {self.backend_id}: --host-tier-tokens must be in"
                f" 1..{_CAPACITY_TOKENS_MAX}, got {tokens}"
            )
        if rate is not None and not 1.0 <= rate <= _RELOAD_TOKENS_PER_S_MAX:
            raise ConfigurationError(
                f"backend {self.backend_id}: --host-reload-tokens-per-s must be in"
                f" 1..{_RELOAD_TOKENS_PER_S_MAX:.0f}, got {rate}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsConfig:
    """A name that stands for one backend per address."""

    name: str
    """Prefix of the backends' ids; empty: they are `address:port`."""
    templates: tuple[BackendConfig, ...]
    """What each address is, with the name in the URL; several where it has data-parallel ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """One coordinator process."""

    backends: tuple[BackendConfig, ...] = ()
    dns_backends: tuple[DnsConfig, ...] = ()
    backends_file: str | None = None
    """Watched; see `service/backends_file.py`."""
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
    journal_dir: str | None = None
    """Where it is written down what sessions do; `None`: nowhere."""
    journal_bytes_max: int = 256 << 20
    """All journals in that folder together. At least 1 MiB."""
    model_aliases: tuple[tuple[str, str], ...] = ()
    """Relay: names or patterns (`claude-*`) that callers use, and the served model meant by them.
    The first that matches counts."""
    relay_idle_s: float = 600.0
    """Relay: a call in which no byte has moved for this long is ended. (0, 86400]."""

    relay_keep_alive_s: float = 15.0
    """Relay: a held stream shows this often, by a comment, that it is alive. (0, 3600]."""

    def __post_init__(self) -> None:
        """Refuse what would fail later and less clearly."""
        if not (self.backends or self.dns_backends or self.backends_file):
            raise ConfigurationError(
                "no backend given: add --backend http://HOST:PORT (repeatable), TAO_BACKENDS or"
                " --backends-file FILE"
            )
        seen: set[str] = set()
        engines: dict[tuple[object, ...], str] = {}
        for backend in self.backends:
            if backend.backend_id in seen:
                raise ConfigurationError(
                    f"two backends are called {backend.backend_id!r}: name them with"
                    " --backend ID=URL"
                )
            seen.add(backend.backend_id)
            twin = engines.setdefault(backend.engine, backend.backend_id)
            if twin != backend.backend_id:
                raise ConfigurationError(
                    f"backend {backend.backend_id}: {backend.base_url} is backend {twin} already"
                )
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"--port must be in 0..65535, got {self.port}")
        if self.api_key is not None and not is_header_value(self.api_key):
            raise ConfigurationError("--api-key must be printable ASCII and not empty")
        if not (math.isfinite(self.time_scale) and 0.0 < self.time_scale <= 10_000.0):
            raise ConfigurationError(f"--time-scale must be in (0, 10000], got {self.time_scale}")
        if self.log_level not in LOG_LEVELS:
            raise ConfigurationError(
                f"--log-level must be one of {', '.join(LOG_LEVELS)}, got {self.log_level!r}"
            )
        if self.journal_bytes_max < JOURNAL_BYTES_MAX_MIN:
            raise ConfigurationError(
                f"--journal-bytes-max must be at least {JOURNAL_BYTES_MAX_MIN},"
                f" got {self.journal_bytes_max}"
            )
        self._check_relay()

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach it and no key is asked of them."""
        if self.api_key is not None or self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return True

    def _check_relay(self) -> None:
        for pattern, model in self.model_aliases:
            if not pattern or not model or fnmatchcase(model, pattern):
                raise ConfigurationError(
                    f"--model-alias {pattern}={model} must name a pattern and a model outside it"
                )
        if not (math.isfinite(self.relay_idle_s) and 0.0 < self.relay_idle_s <= 86_400.0):
            raise ConfigurationError(f"--relay-idle must be in (0, 86400], got {self.relay_idle_s}")
        if not (math.isfinite(self.relay_keep_alive_s) and 0.0 < self.relay_keep_alive_s <= 3600.0):
            raise ConfigurationError(
                f"--relay-keep-alive must be in (0, 3600], got {self.relay_keep_alive_s}"
            )


def is_header_value(text: str) -> bool:
    """Whether a key can stand in an HTTP header."""
    return text.isascii() and text.isprintable() and bool(text.strip())
