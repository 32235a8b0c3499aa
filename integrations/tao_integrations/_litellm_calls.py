"""What a litellm call says about itself, and how to aim it at a backend. No I/O.

For every integration whose model calls go through `litellm.completion` or `litellm.responses` with
settings of the form `model_name` and `model_kwargs`.
"""

import sys
from collections.abc import Mapping
from typing import Any, cast

import tao_client as tao

DEFAULT_TIMEOUT_S = 600.0
"""Time-out of a call that sets none (litellm's own default)."""
NOTICEABLE_HOLD_S = 1.0
"""A shorter hold is not taken off the time-out of the call."""
LONGEST_CHAIN = 16
"""Causes of an error that are looked at; a chain may close in itself."""
OPENAI_PROVIDERS = frozenset(
    {
        "openai",
        "hosted_vllm",
        "openai_like",
        "custom_openai",
        "litellm_proxy",
        "lm_studio",
        "llamafile",
        "nvidia_nim",
        "xinference",
    }
)
"""litellm providers that send an OpenAI call to the `api_base` they are given."""


def provider(config: object) -> str:
    """The litellm provider; a name without one is taken for an OpenAI model."""
    given = model_kwargs(config).get("custom_llm_provider")
    if isinstance(given, str) and given:
        return given
    name = str(getattr(config, "model_name", ""))
    return name.split("/", 1)[0] if "/" in name else "openai"


def served_model(config: object) -> str:
    """The model's name as the backends know it: litellm's without the provider in front."""
    name = str(getattr(config, "model_name", ""))
    prefix, _, rest = name.partition("/")
    return rest if rest and prefix == provider(config) else name


def model_kwargs(config: object) -> dict[str, object]:
    """The settings that go along with every call of this model."""
    given = getattr(config, "model_kwargs", None)
    return cast("dict[str, object]", given) if isinstance(given, dict) else {}


def timeout_s(given: Mapping[str, object]) -> float | None:
    """The call's own time-out, seconds. None: not set, or an object with several limits."""
    value = given.get("timeout")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def max_output_tokens(given: Mapping[str, object]) -> int | None:
    """The call's limit on the reply, by any of its three names."""
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    return _first_count(*(given.get(name) for name in names))


def characters(value: object) -> int:
    """Length of all text in the messages; images and other inline data are not text."""
    if isinstance(value, str):
        return 0 if value.startswith("data:") else len(value)
    if isinstance(value, dict):
        return sum(characters(part) for part in cast("dict[str, object]", value).values())
    if isinstance(value, list | tuple):
        return sum(characters(part) for part in cast("list[object]", value))
    return 0


def new_turn(
    session: tao.Session, config: object, messages: object, kwargs: Mapping[str, object]
) -> tao.Turn:
    """The turn that a call is, not yet asked for.

    Args:
        session: The session that makes the call.
        config: The model's settings, which the call's own arguments override.
        messages: The prompt.
        kwargs: The call's own arguments.
    """
    given = {**model_kwargs(config), **kwargs}
    return session.turn(
        model=served_model(config),
        input_chars=characters(messages),
        max_output_tokens=max_output_tokens(given),
        timeout_s=timeout_s(given) or DEFAULT_TIMEOUT_S,
    )


def placed(
    turn: tao.Turn, config: object, kwargs: Mapping[str, Any], *, held_s: float
) -> dict[str, Any]:
    """The call's own arguments, aimed at the turn's backend; unchanged if it was given none.

    Args:
        turn: The turn, already asked for.
        config: The model's settings, which the call's own arguments override.
        kwargs: The call's own arguments.
        held_s: Seconds the turn was held: they count against the call's time-out.
    """
    if turn.affinity is None:
        return dict(kwargs)
    given: dict[str, Any] = {**model_kwargs(config), **kwargs}
    aimed = {**kwargs, "api_base": turn.base_url("")}
    if "base_url" in given:  # litellm prefers it to `api_base`
        aimed["base_url"] = aimed["api_base"]
    aimed["extra_headers"] = {**(given.get("extra_headers") or {}), **turn.headers}
    limit_s = timeout_s(given)
    if limit_s is not None and held_s >= NOTICEABLE_HOLD_S:
        aimed["timeout"] = max(1.0, limit_s - held_s)
    return aimed


def report_usage(turn: tao.Turn, response: object) -> None:
    """Tell the turn what the reply says it used, under either API's names."""
    usage = _field(response, "usage")
    details = _field(usage, "prompt_tokens_details") or _field(usage, "input_tokens_details")
    turn.report(
        input_tokens=_first_count(_field(usage, "prompt_tokens"), _field(usage, "input_tokens")),
        cached_tokens=_first_count(_field(details, "cached_tokens")),
        output_tokens=_first_count(
            _field(usage, "completion_tokens"), _field(usage, "output_tokens")
        ),
    )


def own_timeout(held: tao.HoldTimeoutError, config: object) -> Exception:
    """The error with which litellm itself says that a call took too long."""
    if "litellm" not in sys.modules:  # a model of the user's own kind
        return TimeoutError(str(held))
    from litellm.exceptions import Timeout

    return Timeout(str(held), model=served_model(config), llm_provider=provider(config))


def took_no_connection(error: BaseException) -> bool:
    """Whether the backend took no connection: nothing was sent, and elsewhere it may go well."""
    below: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if below is None or type(below).__name__ == "ConnectError":
            break
        below = below.__cause__ or below.__context__
    return type(below).__name__ == "ConnectError"


def _field(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(name)
    return getattr(value, name, None)


def _first_count(*candidates: object) -> int | None:
    return next(
        (value for value in candidates if isinstance(value, int) and not isinstance(value, bool)),
        None,
    )
