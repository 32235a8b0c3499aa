"""How a gateway is told which engine a turn is to run on, and how it tells which one it took.

Behind a gateway the base URL is the same for every engine, so the affinity travels in headers that
the gateway obeys. One row per gateway: what is minted from the engine's name in the gateway's own
words (`BackendConfig.gateway_target`), what of the session goes along for gateways that hash it,
and in which response header the served engine comes back. `X-Session-ID` is added for all of them
by the service; a row that needs that header for itself wins.

    gateway                 target                  request headers
    llm-d                   namespace/pod           x-session-token: base64(target)
    aibrix                  ip:port                 routing-strategy: session-affinity,
                                                    x-session-id: base64(target)
    dynamo                  worker instance id      x-dynamo-worker-instance-id: target
    envoy                   ip:port                 x-gateway-destination-endpoint: target
    envoy-stateful-session  ip:port                 <gateway_header>: base64(target)
    smg                     0-based worker index    x-smg-target-worker: target
    litellm                 api base of deployment  (none; x-litellm-session-id)
    header                  any                     <gateway_header>: target
    session-only            (none)                  (X-Session-ID alone: the gateway hashes it)

What each gateway must be started with stands in `docs/operations.md`.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import ConfigurationError

SESSION: Final = "{session}"
"""Stands for the session id in a minted header value."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """What goes along with every turn that is placed on one backend."""

    headers: Headers = ()
    """Lower-case names; values may hold `SESSION`."""
    served_by: Headers = ()
    """Response headers that show that this backend served the turn; any one of them is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    target: re.Pattern[str] | None
    """What a target must look like; `None`: the gateway takes none."""
    form: str
    """The same in words."""
    headers: Callable[[str, str], Headers]
    """Of target and configured header name."""
    served_by: Callable[[str, str], Headers]
    needs_header: bool = False


def affinity_of(backend: BackendConfig) -> Affinity:
    """Headers for turns on this backend.

    Raises:
        ConfigurationError: The gateway needs a target or a header that is missing or malformed.
    """
    rank = _rank_headers(backend)
    if backend.gateway is None:
        return Affinity(headers=rank)
    row = _ROWS[backend.gateway]
    target, header = backend.gateway_target or "", (backend.gateway_header or "").lower()
    who = f"backend {backend.backend_id}: gateway {backend.gateway}"
    if row.target is None and target:
        raise ConfigurationError(f"{who} takes no gateway_target")
    if row.target is not None and not row.target.fullmatch(target):
        raise ConfigurationError(f"{who} needs gateway_target = {row.form}, got {target!r}")
    if row.needs_header and not header:
        raise ConfigurationError(f"{who} needs gateway_header, the header that it reads")
    return Affinity(
        headers=(*row.headers(target, header), *rank), served_by=row.served_by(target, header)
    )


def _rank_headers(backend: BackendConfig) -> Headers:
    rank = backend.data_parallel_rank
    if rank is None:
        return ()
    # vLLM and SGLang read this one; Dynamo takes it as an alias of its own.
    name = "x-dynamo-dp-rank" if backend.gateway == "dynamo" else "x-data-parallel-rank"
    return ((name, str(rank)),)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _nothing(target: str, header: str) -> Headers:
    return ()


_ADDRESS: Final = re.compile(r"(?:[0-9.]{7,15}|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_DESTINATION: Final = "x-gateway-destination-endpoint"

_ROWS: Final[dict[str, _Row]] = {
    "llm-d": _Row(
        target=re.compile(r"[^/\s]+/[^/\s]+"),
        form="NAMESPACE/POD",
        headers=lambda target, _: (("x-session-token", _base64(target)),),
        served_by=lambda target, _: (("x-session-token", _base64(target)),),
    ),
    "aibrix": _Row(
        target=_ADDRESS,
        form="IP:PORT of the pod",
        headers=lambda target, _: (
            ("routing-strategy", "session-affinity"),
            # Not the session: to AIBrix this header *is* the pin.
            ("x-session-id", _base64(target)),
        ),
        served_by=lambda target, _: (
            ("x-session-id", _base64(target)),
            ("target-pod-ip", target),
            ("target-pod-ip", target.rpartition(":")[0]),
        ),
    ),
    "dynamo": _Row(
        target=re.compile(r"[0-9]{1,20}"),
        form="the worker's instance id, a number",
        headers=lambda target, _: (
            ("x-dynamo-worker-instance-id", target),
            ("x-dynamo-session-id", SESSION),
        ),
        served_by=_nothing,
    ),
    "envoy": _Row(
        target=_ADDRESS,
        form="IP:PORT",
        headers=lambda target, header: ((header or _DESTINATION, target),),
        served_by=_nothing,
    ),
    "envoy-stateful-session": _Row(
        target=_ADDRESS,
        form="IP:PORT",
        headers=lambda target, header: ((header, _base64(target)),),
        # Envoy writes the header of the host that it took, where that is another one.
        served_by=lambda target, header: ((header, _base64(target)),),
        needs_header=True,
    ),
    "smg": _Row(
        target=re.compile(r"[0-9]{1,4}|"),
        form="the worker's 0-based index, or nothing",
        headers=lambda target, _: (
            *((("x-smg-target-worker", target),) if target else ()),
            ("x-smg-routing-key", SESSION),
        ),
        served_by=_nothing,
    ),
    "litellm": _Row(
        target=re.compile(r"https?://\S+"),
        form="the deployment's api_base",
        headers=lambda _, __: (("x-litellm-session-id", SESSION),),
        served_by=lambda target, _: (("x-litellm-model-api-base", target),),
    ),
    "header": _Row(
        target=re.compile(r"\S+"),
        form="the value that the gateway maps to the engine",
        headers=lambda target, header: ((header, target),),
        served_by=_nothing,
        needs_header=True,
    ),
    "session-only": _Row(
        target=None,
        form="",
        headers=lambda _, header: ((header, SESSION),) if header else (),
        served_by=_nothing,
    ),
}
