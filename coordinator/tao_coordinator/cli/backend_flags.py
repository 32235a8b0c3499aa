"""The flags of `tao coordinator` that describe backends one by one, and what was said with them.

`[ID=]VALUE` is for one backend, or for all that are not named themselves; `TAO_*` variables hold
the same, with commas or blanks between.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tao_coordinator.config import ENGINE_KINDS, BackendConfig, DnsConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.backend_settings import api_root, id_of_url, with_ranks

T = TypeVar("T")


def register_backends(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe engines one by one."""
    backends = parser.add_argument_group("backends", "the engines that turns are sent to")
    backends.add_argument(
        "--backend",
        action="append",
        metavar="[ID=]URL",
        help="an engine's API root, with or without /v1; repeatable; ID defaults to host:port;"
        " dns+http://NAME:PORT makes one backend of each address of NAME",
    )
    backends.add_argument(
        "--backends-file",
        metavar="FILE",
        help="TOML ([[backend]] tables) or .jsonl: more backends, with all their settings; watched",
    )
    backends.add_argument(
        "--engine",
        action="append",
        metavar="[ID=]KIND",
        help=f"one of {', '.join(ENGINE_KINDS)} (default auto: told from its metrics); repeatable",
    )
    backends.add_argument(
        "--data-parallel-ranks",
        action="append",
        metavar="[ID=]N",
        help="the URL serves N data-parallel ranks, each a backend of its own; repeatable",
    )
    backends.add_argument(
        "--capacity",
        action="append",
        metavar="[ID=]TOKENS",
        help="KV pool of a backend (or of all) where the engine does not report it; repeatable",
    )
    backends.add_argument(
        "--capacity-scale",
        action="append",
        metavar="[ID=]FACTOR",
        help="factor on the capacity of a backend (or of all); repeatable",
    )
    backends.add_argument(
        "--host-tier-tokens",
        action="append",
        metavar="[ID=]TOKENS",
        help="KV tokens that a backend's host memory keeps below its pool; repeatable",
    )
    backends.add_argument(
        "--host-reload-tokens-per-s",
        action="append",
        metavar="[ID=]RATE",
        help="KV tokens a second that come back from there; repeatable",
    )


def backends_from(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[tuple[BackendConfig, ...], tuple[DnsConfig, ...]]:
    """What flags and variables say of backends one by one: engines, and names of several.

    Raises:
        ConfigurationError: names the flag and what is wrong with it.
    """
    backends = _backends(arguments.backend or words(environment, "TAO_BACKENDS"))
    known = frozenset(backends)

    def said(flag: str) -> Mapping[str, str]:
        name = flag.removeprefix("--").replace("-", "_")
        texts = getattr(arguments, name) or words(environment, f"TAO_{name.upper()}")
        return _per_backend(flag, texts, known)

    capacities, scales = said("--capacity"), said("--capacity-scale")
    host_tokens, reload_rates = said("--host-tier-tokens"), said("--host-reload-tokens-per-s")
    kinds, ranks = said("--engine"), said("--data-parallel-ranks")
    keys = _backend_keys(arguments.backend_api_key or words(environment, "TAO_BACKEND_API_KEY"))
    redirects = arguments.redirect or words(environment, "TAO_REDIRECT")
    for flag, named in (("--backend-api-key", keys), ("--redirect", redirects)):
        _refuse_unknown(flag, named, known)
    direct: list[BackendConfig] = []
    dns: list[DnsConfig] = []
    for backend_id, url in backends.items():
        is_name = url.startswith("dns+")
        backend = BackendConfig(
            backend_id=backend_id,
            base_url=_resolvable(url) if is_name else url,
            capacity_tokens=_optional(integer, "--capacity", capacities.get(backend_id)),
            capacity_scale=number("--capacity-scale", scales.get(backend_id, "1")),
            host_tier_tokens=_optional(integer, "--host-tier-tokens", host_tokens.get(backend_id)),
            host_reload_tokens_per_s=_optional(
                number, "--host-reload-tokens-per-s", reload_rates.get(backend_id)
            ),
            engine_kind=kinds.get(backend_id, "auto"),
            api_key=keys.get(backend_id, keys.get("*")),
            redirect=backend_id in redirects or "*" in redirects,
        )
        num_ranks = ranks.get(backend_id)
        parts = (backend,)
        if num_ranks is not None:
            parts = with_ranks(backend, integer("--data-parallel-ranks", num_ranks))
        if is_name:
            prefix = "" if backend_id == id_of_url(url) else backend_id
            dns.append(DnsConfig(name=prefix, templates=parts))
        else:
            direct += parts
    return tuple(direct), tuple(dns)


def words(environment: Mapping[str, str], name: str) -> list[str]:
    """What a variable lists."""
    return environment.get(name, "").replace(",", " ").split()


def integer(flag: str, text: str) -> int:
    """The whole number that a flag was given.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{flag} must be a whole number, got {text!r}") from None


def number(flag: str, text: str) -> float:
    """The number that a flag was given.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{flag} must be a number, got {text!r}") from None


def _optional(read: Callable[[str, str], T], flag: str, text: str | None) -> T | None:
    return None if text is None else read(flag, text)


def _backends(texts: Sequence[str]) -> dict[str, str]:
    """`[ID=]URL` as URL by id."""
    backends: dict[str, str] = {}
    for text in texts:
        head, separator, tail = text.partition("=")
        if separator and "://" not in head:
            backend_id, url = head, api_root(tail)
        else:
            url = api_root(text)
            backend_id = id_of_url(url)
        if backend_id in backends:
            raise ConfigurationError(
                f"two backends are called {backend_id!r}: name them with --backend ID=URL"
            )
        backends[backend_id] = url
    return backends


def _resolvable(url: str) -> str:
    """The URL of a name that stands for many addresses, as one that can be checked."""
    scheme, _, rest = url.partition("://")
    if scheme != "dns+http":
        raise ConfigurationError(
            f"--backend {url}: only dns+http; certificates name hosts, not addresses"
        )
    return f"http://{rest}"


def _per_backend(flag: str, texts: Sequence[str], known: frozenset[str]) -> dict[str, str]:
    """`[ID=]VALUE` as value by id; a value without id is for every backend not named itself."""
    common: str | None = None
    values: dict[str, str] = {}
    for text in texts:
        backend_id, separator, value = text.rpartition("=")
        if not separator:
            common = text
        elif backend_id not in known:
            raise ConfigurationError(
                f"{flag} {text}: no backend is called {backend_id!r};"
                f" there are {', '.join(sorted(known)) or 'none'}"
            )
        else:
            values[backend_id] = value
    return {**dict.fromkeys(known, common), **values} if common is not None else values


def _backend_keys(texts: Sequence[str]) -> dict[str, str]:
    """`ID=KEY` as key by id; a key may contain `=`, so that nothing can be left out."""
    keys: dict[str, str] = {}
    for text in texts:
        backend_id, separator, key = text.partition("=")
        if not separator:
            raise ConfigurationError("--backend-api-key must be ID=KEY, or *=KEY for all backends")
        keys[backend_id] = key
    return keys


def _refuse_unknown(flag: str, named: Iterable[str], known: frozenset[str]) -> None:
    for backend_id in named:
        if backend_id != "*" and backend_id not in known:
            raise ConfigurationError(
                f"{flag} {backend_id}: no backend is called that;"
                f" there are {', '.join(sorted(known)) or 'none'}"
            )
