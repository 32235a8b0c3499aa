"""`tao sim-backend`: serve a modelled H100 backend for demos and tests."""

import argparse
import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from tao_coordinator.cli.engine_choice import add_engine_option, engine_of
from tao_coordinator.errors import ConfigurationError

if TYPE_CHECKING:
    from tao_coordinator.service.sim_backend.settings import SimBackendSettings
    from tao_coordinator.simulation.backend_model import BackendModel


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "sim-backend",
        help="serve a modelled H100 backend over HTTP (OpenAI API, vLLM metrics)",
        description=(
            "Serve one modelled H100 backend: OpenAI chat and completions with streaming, a prefix"
            " cache with vLLM's rules, vLLM's metrics, and times that follow the step times of a"
            " real engine. No GPU, no model and no tokenizer; replies are filler text or scripted."
        ),
        epilog=(
            "GET /sim/requests?since=N lists the finished requests after number N with their real"
            " times and cached tokens."
        ),
    )
    _add_engine_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on; 0, the default, takes a free one"
    )
    parser.add_argument("--model", metavar="NAME", help="served model name (default sim/PRESET)")
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        help='JSON with scripted replies, {"scripts": {NAME: {"turns": [{"text": ..., "tool_calls":'
        ' [{"name": ..., "arguments": {...}}], "output_tokens": N}, ...]}}}; a chat plays NAME when'
        " a message contains [[script NAME]], and is at the turn given by its number of assistant"
        " messages",
    )
    parser.add_argument(
        "--context-tokens-max",
        type=int,
        metavar="N",
        help="longest prompt plus reply (default: the model's, at most the pool)",
    )
    parser.add_argument(
        "--json", action="store_true", help="say where it listens as one line of JSON"
    )
    parser.set_defaults(run=run)


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    """What is modelled."""
    add_engine_option(parser)
    parser.add_argument(
        "--capacity-tokens",
        type=int,
        metavar="N",
        help="size of the KV pool in tokens (default: the engine's)",
    )
    parser.add_argument(
        "--block-size",
        type=int,
        default=16,
        metavar="N",
        help="tokens in one KV block, the unit of prefix hits (default %(default)s)",
    )
    parser.add_argument(
        "--chars-per-token",
        default="4",
        metavar="X",
        help="how many characters of text count as one token (default %(default)s); may be below 1,"
        " so that a short real text stands for a long context: with 0.05 a prompt of 1,500"
        " characters is 30,000 tokens",
    )
    parser.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="engine seconds that pass in one real second (default 1: real time); give the"
        " coordinator the same --time-scale",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit status."""
    settings = settings_from(arguments)
    as_json: bool = arguments.json

    from tao_coordinator.service.sim_backend.server import serve

    def announce(url: str, model: "BackendModel") -> None:
        if as_json:
            facts = {
                "url": url,
                "model": settings.model,
                "engine": settings.constants.name,
                "capacity_tokens": model.capacity_tokens,
                "time_scale": settings.time_scale,
            }
            print(json.dumps(facts), flush=True)
        else:
            print(
                f"sim-backend listening on {url} model={settings.model}"
                f" pool={model.capacity_tokens} tokens time-scale={settings.time_scale:g}",
                flush=True,
            )

    return serve(settings, announce)


def settings_from(arguments: argparse.Namespace) -> "SimBackendSettings":
    """Put flags and the engine's defaults together.

    Raises:
        ConfigurationError: A flag or the script file makes no sense; the message names it.
    """
    from tao_coordinator.service.sim_backend.scripts import ScriptLibrary, load_scripts
    from tao_coordinator.service.sim_backend.settings import SimBackendSettings

    constants = engine_of(arguments.engine)
    capacity: int | None = arguments.capacity_tokens
    capacity_tokens = constants.kv_capacity_tokens if capacity is None else capacity
    whole_blocks_tokens = capacity_tokens - capacity_tokens % max(1, int(arguments.block_size))
    context: int | None = arguments.context_tokens_max
    script: Path | None = arguments.script
    model: str | None = arguments.model
    return SimBackendSettings(
        constants=constants,
        host=arguments.host,
        port=arguments.port,
        capacity_tokens=capacity_tokens,
        block_size=arguments.block_size,
        chars_per_token=_fraction(str(arguments.chars_per_token)),
        time_scale=arguments.time_scale,
        model=f"sim/{constants.name}" if model is None else model,
        context_tokens_max=(
            min(constants.context_tokens_max, whole_blocks_tokens) if context is None else context
        ),
        scripts=ScriptLibrary() if script is None else load_scripts(script),
    )


def _fraction(text: str) -> Fraction:
    try:
        # A bound on the denominator keeps the arithmetic on small numbers.
        return Fraction(text).limit_denominator(1_000_000)
    except (ValueError, ZeroDivisionError):
        raise ConfigurationError(f"--chars-per-token {text}: must be a number") from None
