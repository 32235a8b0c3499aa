"""`tao coordinator`: serve the scheduler.

Flags win over `TAO_*` variables, which win over the defaults.
"""

import argparse
import logging
import os
import secrets
import sys
from collections.abc import Mapping, Sequence

from tao_client.semconv import DEFAULT_PORT
from tao_coordinator.cli.backend_flags import (
    backends_from,
    integer,
    number,
    register_backends,
    words,
)
from tao_coordinator.config import LOG_LEVELS, CoordinatorConfig
from tao_coordinator.errors import ConfigurationError

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
    register_backends(parser)
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
        if config.is_open:
            _log.warning(
                "anyone who reaches %s can use the backends, and see and end sessions:"
                " set a key with --api-key, or keep the port inside the cluster",
                config.host,
            )

    return serve(config, engine, announce)


def config_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> CoordinatorConfig:
    """Put flags, variables and defaults together.

    Raises:
        ConfigurationError: Something is missing or makes no sense; the message names the flag.
    """
    direct, dns = backends_from(arguments, environment)

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
        port=integer("--port", setting("port", str(DEFAULT_PORT))),
        policy=setting("policy", "tao"),
        api_key=setting("api_key", "") or None,
        time_scale=number("--time-scale", setting("time_scale", "1")),
        log_level=setting("log_level", "info").lower(),
        state_dir=setting("state_dir", "") or None,
        journal_dir=setting("journal", "") or None,
        journal_bytes_max=_bytes("--journal-bytes-max", setting("journal_bytes_max", "256M")),
        model_aliases=_aliases(arguments.model_alias or words(environment, "TAO_MODEL_ALIAS")),
        relay_idle_s=number("--relay-idle", setting("relay_idle", "600")),
        relay_keep_alive_s=number("--relay-keep-alive", setting("relay_keep_alive", "15")),
    )


def _counted(config: CoordinatorConfig) -> str:
    """Number of backends given one by one, and the other sources."""
    others = [f"dns:{dns.templates[0].base_url[7:]}" for dns in config.dns_backends]
    if config.backends_file is not None:
        others.append(config.backends_file)
    return "+".join([str(len(config.backends)), *others])


def _aliases(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    aliases: list[tuple[str, str]] = []
    for text in texts:
        pattern, separator, model = text.partition("=")
        if not separator:
            raise ConfigurationError(f"--model-alias {text!r} must be PATTERN=MODEL")
        aliases.append((pattern, model))
    return tuple(aliases)


def _bytes(flag: str, text: str) -> int:
    """A number of bytes, with K, M or G (powers of 1,024) or without."""
    unit = _UNITS.get(text[-1:].upper(), 0)
    try:
        return int(text[:-1] if unit else text) << unit
    except ValueError:
        raise ConfigurationError(
            f"{flag} must be a number of bytes such as 512M, got {text!r}"
        ) from None


def _set_up_logging(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
    )
    # One line for every poll of every backend would drown the rest.
    for name in ("httpx2", "httpcore2", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
