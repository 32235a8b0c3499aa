"""One backend as a table of a file or a JSON body: keys are the fields of `BackendConfig`.

    backend_id = "gpu-1"                  # optional: host:port of base_url
    base_url = "http://gpu-1:8000"
    data_parallel_ranks = 4               # only here: makes gpu-1-dp0 .. gpu-1-dp3
    kv_events_url = "tcp://gpu-1:5557"    # rank n listens at this port + n

Unknown keys are errors, as everywhere in the configuration.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

from tao_coordinator.adapters import gateways
from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import ConfigurationError

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "capacity_tokens": (int,),
    "data_parallel_rank": (int,),
    "data_parallel_ranks": (int,),
    "capacity_scale": (int, float),
    "host_tier_tokens": (int,),
    "host_reload_tokens_per_s": (int, float),
    "redirect": (bool,),
}
"""All other fields are text."""
_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(BackendConfig))
_RANKS_MAX: Final = 256


def backends_of(table: Mapping[str, object]) -> tuple[BackendConfig, ...]:
    """The backends that one table describes; several only with `data_parallel_ranks`.

    Raises:
        ConfigurationError: Names the key that is unknown, missing, of the wrong type or range.
    """
    values = dict(table)
    for key, value in table.items():
        _check_type(key, value)
        if value is None:
            del values[key]
    url = values.get("base_url")
    if not isinstance(url, str):
        raise ConfigurationError("base_url is missing: the engine's API root, http://HOST:PORT")
    url = api_root(url)
    values["base_url"] = url
    values.setdefault("backend_id", id_of_url(url))
    num_ranks = cast("int", values.pop("data_parallel_ranks", 1))
    backend = BackendConfig(**values)  # pyright: ignore[reportArgumentType]
    gateways.affinity_of(backend)  # raises where the gateway cannot be told so
    return with_ranks(backend, num_ranks) if "data_parallel_ranks" in table else (backend,)


def with_ranks(backend: BackendConfig, num_ranks: int) -> tuple[BackendConfig, ...]:
    """One backend per data-parallel rank: each has a KV cache of its own.

    Raises:
        ConfigurationError: The number of ranks makes no sense.
    """
    if not 1 <= num_ranks <= _RANKS_MAX:
        raise ConfigurationError(
            f"backend {backend.backend_id}: data_parallel_ranks must be in 1..{_RANKS_MAX},"
            f" got {num_ranks}"
        )
    return tuple(
        dataclasses.replace(
            backend,
            backend_id=f"{backend.backend_id}-dp{rank}",
            data_parallel_rank=rank,
            kv_events_url=_at_rank(backend.kv_events_url, rank),
            kv_events_replay_url=_at_rank(backend.kv_events_replay_url, rank),
        )
        for rank in range(num_ranks)
    )


def api_root(url: str) -> str:
    """The URL without a trailing `/v1`."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def id_of_url(url: str) -> str:
    """`host:port`, the id of a backend that was given none.

    Raises:
        ConfigurationError: There is no host in it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigurationError(f"backend {url!r}: {error}") from error
    if not parts.hostname:
        raise ConfigurationError(f"backend {url!r} is no http(s) URL with a host")
    return f"{parts.hostname}:{port}"


def _check_type(key: str, value: object) -> None:
    if key not in _FIELDS and key != "data_parallel_ranks":
        known = ", ".join(sorted(_FIELDS | {"data_parallel_ranks"}))
        raise ConfigurationError(f"unknown key {key!r}; there are {known}")
    kinds = _TYPES.get(key, (str,))
    is_bool = isinstance(value, bool)
    if value is not None and (not isinstance(value, kinds) or is_bool != (kinds == (bool,))):
        names = " or ".join("text" if kind is str else kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{key} must be {names}")


def _at_rank(url: str | None, rank: int) -> str | None:
    """Engines publish the events of rank n at the first port + n."""
    if url is None or not url.startswith("tcp://"):
        return url
    head, _, port = url.rpartition(":")
    return f"{head}:{int(port) + rank}" if port.isdigit() else url
