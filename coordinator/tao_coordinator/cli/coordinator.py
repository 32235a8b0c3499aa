"""`tao coordinator`: serve the scheduler.

Flags win over `TAO_*` variables, which win over the defaults.
"""

import argparse
import logging
import os
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence

from tao_client.semconv import DEFAULT_PORT
from tao_coordinator.config import (
    ENGINE_KINDS,
    LOG_LEVELS,
    BackendConfig,
    CoordinatorConfig,
    DnsConfig,
)
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.backend_settings import api_root, id_of_url, with_ranks

_log = logging.getLogger(__name__)
_UNITS = {"K": 10, "M": 20, "G": 30}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "coordinator",
        help="serve the scheduler",
        description="Serve the scheduler in front of one or more engines.",
        epilog=(
            "Every flag can be given as a variable instead: TAO_BACKENDS (separated by commas or"
            " blanks), TAO_HOST, TAO_PORT, TAO_POLICY, TAO_CAPACITY, TAO_CAPACITY_SCALE,"
            " TAO_BACKENDS_FILE, TAO_ENGINE, TAO_DATA_PARALLEL_RANKS,"
            " TAO_API_KEY, TAO_TIME_SCALE, TAO_LOG_LEVEL, TAO_STATE_DIR, TAO_JOURNAL,"
            " TAO_JOURNAL_BYTES_MAX, TAO_BACKEND_API_KEY,"
            " TAO_REDIRECT, TAO_MODEL_ALIAS, TAO_RELAY_IDLE, TAO_RELAY_KEEP_ALIVE."
            " Flags win."
        ),
    )
    _register_backends(parser)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port", help=f"port to listen on, 0 for a free one (default {DEFAULT_PORT})"
    )
    parser.add_argument("--policy", metavar="NAME", help="scheduling policy (default tao)")
    parser.add_argument("--api-key", metavar="KEY", help="require this key from every client")
    parser.add_argument(
        "--time-scale",
        metavar="FACTOR",
        help="only for simulated engines that run FACTOR times faster than real ones: the"
        " scheduler's own times (bounds of a hold, grace, ticks) are divided by it",
    )
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="keep what is learned of tool durations here across restarts (default: nowhere)",
    )
    _register_journal(parser)
    _register_relay(parser)
    parser.add_argument("--log-level", metavar="LEVEL", help=f"one of {', '.join(LOG_LEVELS)}")
    parser.set_defaults(run=run)


def _register_backends(parser: argparse.ArgumentParser) -> None:
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


def _register_journal(parser: argparse.ArgumentParser) -> None:
    journal = parser.add_argument_group(
        "journal", "what sessions did, for `tao replay DIR`: sizes, names and times, no content"
    )
    journal.add_argument(
        "--journal", metavar="DIR", help="write it into files of this folder (default: nowhere)"
    )
    journal.add_argument(
        "--journal-bytes-max",
        metavar="BYTES",
        help="delete the oldest files beyond this, such as 512M or 2G (default 256M)",
    )


def _register_relay(parser: argparse.ArgumentParser) -> None:
    relay = parser.add_argument_group(
        "relay", "for harnesses that call /v1/... on the coordinator itself"
    )
    relay.add_argument(
        "--backend-api-key",
        action="append",
        metavar="ID=KEY",
        help="what the coordinator shows that backend (ID `*`: all); never handed out; repeatable",
    )
    relay.add_argument(
        "--redirect",
        action="append",
        metavar="ID",
        help="answer calls for that backend (`*`: all) with 307 to it; repeatable",
    )
    relay.add_argument(
        "--model-alias",
        action="append",
        metavar="PATTERN=MODEL",
        help="serve MODEL to callers that ask for PATTERN, such as 'claude-*=qwen3'; repeatable",
    )
    relay.add_argument(
        "--relay-idle",
        metavar="SECONDS",
        help="end a relayed call in which no byte has moved for this long (default 600)",
    )
    relay.add_argument(
        "--relay-keep-alive",
        metavar="SECONDS",
        help="tell clients of held streams this often that they are alive (default 15)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit status."""
    config = config_from(arguments, os.environ)
    from tao_coordinator.core.parameters import Parameters
    from tao_coordinator.engine import Engine
    from tao_coordinator.service.server import serve

    _set_up_logging(config.log_level)
    if config.is_open:
        _log.warning(
            "anyone who reaches %s can use the backends, and see and end sessions:"
            " set a key with --api-key, or keep the port inside the cluster",
            config.host,
        )
    parameters = Parameters()
    if config.time_scale != 1.0:
        parameters = parameters.scaled(config.time_scale)
    prefix = f"l{secrets.token_hex(4)}-"
    engine = Engine(parameters, config.policy, makes_plans_aside=True, lease_prefix=prefix)

    def announce(url: str) -> None:
        print(
            f"coordinator listening on {url} policy={config.policy} backends={_counted(config)}",
            flush=True,
        )

    return serve(config, engine, announce)


def config_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> CoordinatorConfig:
    """Put flags, variables and defaults together.

    Raises:
        ConfigurationError: Something is missing or makes no sense; the message names the flag.
    """
    direct, dns = _backends_from(arguments, environment)

    def setting(flag: str, default: str) -> str:
        given: str | None = getattr(arguments, flag)
        if given == "":
            # Most likely a shell variable that is not set: no key would let everybody in.
            raise ConfigurationError(f"--{flag.replace('_', '-')} must not be empty")
        return given if given is not None else environment.get(f"TAO_{flag.upper()}") or default

    return CoordinatorConfig(
        backends=direct,
        dns_backends=dns,
        backends_file=setting("backends_file", "") or None,
        host=setting("host", "127.0.0.1"),
        port=_integer("--port", setting("port", str(DEFAULT_PORT))),
        policy=setting("policy", "tao"),
        api_key=setting("api_key", "") or None,
        time_scale=_number("--time-scale", setting("time_scale", "1")),
        log_level=setting("log_level", "info").lower(),
        state_dir=setting("state_dir", "") or None,
        journal_dir=setting("journal", "") or None,
        journal_bytes_max=_bytes("--journal-bytes-max", setting("journal_bytes_max", "256M")),
        model_aliases=_aliases(arguments.model_alias or _words(environment, "TAO_MODEL_ALIAS")),
        relay_idle_s=_number("--relay-idle", setting("relay_idle", "600")),
        relay_keep_alive_s=_number("--relay-keep-alive", setting("relay_keep_alive", "15")),
    )


def _backends_from(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[tuple[BackendConfig, ...], tuple[DnsConfig, ...]]:
    """What flags and variables say of backends one by one: engines, and names of several."""
    backends = _backends(arguments.backend or _words(environment, "TAO_BACKENDS"))
    known = frozenset(backends)

    def said(flag: str) -> Mapping[str, str]:
        name = flag.removeprefix("--").replace("-", "_")
        texts = getattr(arguments, name) or _words(environment, f"TAO_{name.upper()}")
        return _per_backend(flag, texts, known)

    capacities, scales = said("--capacity"), said("--capacity-scale")
    host_tokens, reload_rates = said("--host-tier-tokens"), said("--host-reload-tokens-per-s")
    kinds, ranks = said("--engine"), said("--data-parallel-ranks")
    keys = _backend_keys(arguments.backend_api_key or _words(environment, "TAO_BACKEND_API_KEY"))
    redirects = arguments.redirect or _words(environment, "TAO_REDIRECT")
    for flag, named in (("--backend-api-key", keys), ("--redirect", redirects)):
        _refuse_unknown(flag, named, known)
    direct: list[BackendConfig] = []
    dns: list[DnsConfig] = []
    for backend_id, url in backends.items():
        is_name = url.startswith("dns+")
        backend = BackendConfig(
            backend_id=backend_id,
            base_url=_resolvable(url) if is_name else url,
            capacity_tokens=_tokens("--capacity", capacities.get(backend_id)),
            capacity_scale=_number("--capacity-scale", scales.get(backend_id, "1")),
            host_tier_tokens=_tokens("--host-tier-tokens", host_tokens.get(backend_id)),
            host_reload_tokens_per_s=(
                _number("--host-reload-tokens-per-s", reload_rates[backend_id])
                if backend_id in reload_rates
                else None
            ),
            engine_kind=kinds.get(backend_id, "auto"),
            api_key=keys.get(backend_id, keys.get("*")),
            redirect=backend_id in redirects or "*" in redirects,
        )
        num_ranks = ranks.get(backend_id)
        parts = (backend,)
        if num_ranks is not None:
            parts = with_ranks(backend, _integer("--data-parallel-ranks", num_ranks))
        if is_name:
            prefix = "" if backend_id == id_of_url(url) else backend_id
            dns.append(DnsConfig(name=prefix, templates=parts))
        else:
            direct += parts
    return tuple(direct), tuple(dns)


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return environment.get(name, "").replace(",", " ").split()


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


def _counted(config: CoordinatorConfig) -> str:
    """Number of backends given one by one, and the other sources."""
    others = [f"dns:{dns.templates[0].base_url[7:]}" for dns in config.dns_backends]
    if config.backends_file is not None:
        others.append(config.backends_file)
    return "+".join([str(len(config.backends)), *others])


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


def _aliases(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    aliases: list[tuple[str, str]] = []
    for text in texts:
        pattern, separator, model = text.partition("=")
        if not separator:
            raise ConfigurationError(f"--model-alias {text!r} must be PATTERN=MODEL")
        aliases.append((pattern, model))
    return tuple(aliases)


def _refuse_unknown(flag: str, named: Iterable[str], known: frozenset[str]) -> None:
    for backend_id in named:
        if backend_id != "*" and backend_id not in known:
            raise ConfigurationError(
                f"{flag} {backend_id}: no backend is called that;"
                f" there are {', '.join(sorted(known)) or 'none'}"
            )


def _tokens(flag: str, text: str | None) -> int | None:
    return None if text is None else _integer(flag, text)


def _integer(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{flag} must be a whole number, got {text!r}") from None


def _bytes(flag: str, text: str) -> int:
    """A number of bytes, with K, M or G (powers of 1,024) or without."""
    unit = _UNITS.get(text[-1:].upper(), 0)
    try:
        return int(text[:-1] if unit else text) << unit
    except ValueError:
        raise ConfigurationError(
            f"{flag} must be a number of bytes such as 512M, got {text!r}"
        ) from None


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{flag} must be a number, got {text!r}") from None


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
    )
    # One line for every poll of every backend would drown the rest.
    for name in ("httpx2", "httpcore2", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
