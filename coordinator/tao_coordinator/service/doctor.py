"""Examines one backend the way its callers will use it: reachable, known, sized, caching, telling.

Beside one look at its metrics it sends the same small chat call twice, one token long: the second
must find its prompt in the cache and say so in its usage.
"""

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Final, cast

import httpx2

from tao_client import semconv
from tao_coordinator.adapters import gateways
from tao_coordinator.config import BackendConfig
from tao_coordinator.service.findings import Finding, findings_of
from tao_coordinator.service.probe import Look, Probe, ProbeError

CALL_TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
PROMPT_WORDS: Final = 1_500
"""Long enough for whole KV blocks of any size in use."""

_CACHE_FLAGS: Final = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found out about one backend."""

    backend_id: str
    base_url: str
    engine_kind: str | None
    """`None`: it does not answer."""
    models: tuple[str, ...]
    capacity_tokens: int | None
    cached_tokens_told: bool | None
    """Whether replies tell cached tokens; `None`: not tried."""
    findings: tuple[Finding, ...]


async def examine(
    backend: BackendConfig, client: httpx2.AsyncClient, *, calls_model: bool
) -> Examination:
    """Examine one backend. Never raises for what it does.

    Args:
        backend: Whom.
        client: Used for its pages and calls.
        calls_model: Whether to send two model calls of one token each.
    """
    try:
        look = await Probe(backend, client).look()
    except ProbeError as error:
        silent = Finding(
            code="unreachable",
            message=f"{backend.base_url} does not answer: {error}",
            fix="check URL, firewall and engine; agents behind the same wall need the relay",
        )
        return _examination(backend, None, None, (silent,))
    found = findings_of(backend, look)
    told: bool | None = None
    if calls_model:
        told, more = await _call_twice(backend, look, client)
        found += more
    return _examination(backend, look, told, tuple(found))


def _examination(
    backend: BackendConfig, look: Look | None, told: bool | None, found: tuple[Finding, ...]
) -> Examination:
    reported = None if look is None else look.reading.capacity_tokens
    return Examination(
        backend_id=backend.backend_id,
        base_url=backend.base_url,
        engine_kind=None if look is None else look.kind,
        models=() if look is None else look.models or (),
        capacity_tokens=backend.capacity_tokens or reported,
        cached_tokens_told=told,
        findings=found,
    )


async def _call_twice(
    backend: BackendConfig, look: Look, client: httpx2.AsyncClient
) -> tuple[bool | None, list[Finding]]:
    if not look.models:
        message = "no model to try: /v1/models names none"
        return None, [Finding(code="no_model", message=message, fix="check the served models")]
    # A start of its own, so that nothing of an earlier run can be found.
    prompt = f"{uuid.uuid4()} " + "word " * PROMPT_WORDS
    cached: int | None = None
    for _ in range(2):
        try:
            usage = await _call(backend, look.models[0], prompt, client)
        except ProbeError as error:
            fix = "send it a chat call by hand and read its log"
            return None, [Finding(code="call_failed", message=str(error), fix=fix)]
        details = usage.get("prompt_tokens_details")
        told = cast("dict[str, object]", details) if isinstance(details, dict) else {}
        number = told.get("cached_tokens")
        cached = number if isinstance(number, int) else None
    if cached is None:
        message = "replies do not tell cached tokens: hit rates and the shared prefix stay unknown"
        fix = _CACHE_FLAGS.get(look.kind, "let the engine report prompt_tokens_details")
        return False, [Finding(code="cached_tokens_untold", message=message, fix=fix)]
    if cached == 0:
        message = "the same prompt twice found nothing in the cache"
        fix = "switch prefix caching on; or several engines share this URL: list each of them"
        return True, [Finding(code="no_cache_hit", message=message, fix=fix)]
    return True, []


async def _call(
    backend: BackendConfig, model: str, prompt: str, client: httpx2.AsyncClient
) -> dict[str, object]:
    """The usage of one call; raises `ProbeError`."""
    session_id = "tao-doctor"
    headers = {semconv.HEADER_SESSION.lower(): session_id, "content-type": "application/json"}
    for name, value in gateways.affinity_of(backend).headers:
        headers[name] = value.replace(gateways.SESSION, session_id)
    if backend.api_key is not None:
        headers["authorization"] = f"Bearer {backend.api_key}"
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 1,
    }
    url = f"{backend.base_url.rstrip('/')}/v1/chat/completions"
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            answer = await client.post(
                url, content=json.dumps(body), headers=headers, timeout=CALL_TIMEOUT_S
            )
    except (TimeoutError, httpx2.HTTPError) as error:
        raise ProbeError(f"a chat call failed: {error or 'no answer'}") from error
    if answer.status_code != 200 or len(answer.content) > ANSWER_BYTES_MAX:
        text = " ".join(answer.text[:200].split())
        raise ProbeError(f"a chat call was answered HTTP {answer.status_code}: {text}")
    try:
        document: object = answer.json()
    except ValueError as error:
        raise ProbeError("a chat call was answered with something that is no JSON") from error
    fields = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    usage = fields.get("usage")
    if not isinstance(usage, dict):
        raise ProbeError("a chat call was answered without usage: nothing can be learned from it")
    return cast("dict[str, object]", usage)
