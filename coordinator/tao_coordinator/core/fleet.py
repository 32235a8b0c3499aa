"""Backends come, report, fall silent and leave."""

from tao_coordinator.core import ledger
from tao_coordinator.core.effects import Effect, Warn
from tao_coordinator.core.events import (
    BackendAdded,
    BackendDrained,
    BackendSampled,
    BackendUnreachable,
)
from tao_coordinator.core.intake import refuse_stranded
from tao_coordinator.core.model import Backend
from tao_coordinator.core.state import State


def added(state: State, event: BackendAdded, now_s: float) -> list[Effect]:
    """A new backend, or new settings of a known one; it is used after its first sample."""
    known = state.backends.get(event.backend_id)
    if known is None:
        state.backends[event.backend_id] = Backend(
            backend_id=event.backend_id,
            base_url=event.base_url,
            capacity_override_tokens=event.capacity_tokens,
            capacity_scale=event.capacity_scale,
        )
        return []
    known.base_url = event.base_url
    known.capacity_override_tokens = event.capacity_tokens
    known.capacity_scale = event.capacity_scale
    known.draining = False
    return _refuse_stranded(state)


def drained(state: State, event: BackendDrained, now_s: float) -> list[Effect]:
    """No new lease there; running turns finish."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    backend.draining = True
    return _refuse_stranded(state)


def sampled(state: State, event: BackendSampled, now_s: float) -> list[Effect]:
    """The engine answered: it is alive, and this is what it says of itself."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    effects: list[Effect] = []
    if not backend.healthy:
        effects.append(_warn("backend_healthy", backend, f"{backend.base_url} answers"))
    backend.healthy = True
    backend.failures = 0
    backend.sampled_s = now_s
    backend.running, backend.waiting = event.running, event.waiting
    backend.kv_usage_ratio = event.kv_usage_ratio
    could_take = (backend.models, backend.capacity_tokens)
    if event.models is not None:
        backend.models = event.models
    if event.capacity_tokens is not None and event.capacity_tokens > 0:
        # A missing value in one sample does not make a known pool unknown.
        backend.capacity_reported_tokens = event.capacity_tokens
    if (backend.models, backend.capacity_tokens) != could_take:
        effects += _refuse_stranded(state)
    if backend.capacity_tokens is None:
        effects.append(
            _warn(
                "capacity_unknown",
                backend,
                "reports no KV capacity: nothing is held for its sake; "
                f"tell it with --capacity {backend.backend_id}=TOKENS",
            )
        )
    return effects


def unreachable(state: State, event: BackendUnreachable, now_s: float) -> list[Effect]:
    """A poll failed; several in a row, or one before the first success, make it unhealthy."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    backend.failures += 1
    if not backend.healthy:
        if backend.sampled_s is None:
            return [_warn("backend_silent", backend, f"{backend.base_url}: {event.reason}")]
        return []
    if backend.failures < state.parameters.unreachable_limit:
        return []
    backend.healthy = False
    ledger.lose_backend(state, backend, now_s)
    lost = _warn("backend_lost", backend, f"{backend.base_url}: {event.reason}")
    return [lost, *_refuse_stranded(state)]


def _refuse_stranded(state: State) -> list[Effect]:
    """Held turns that no backend could take any more are told so at once."""
    effects: list[Effect] = []
    for turn in list(state.held.values()):
        refusal = refuse_stranded(state, turn)
        if refusal is not None:
            ledger.drop_held(state, turn, refusal)
            state.totals.rejected[refusal.reason.value] += 1
            effects.append(refusal)
    return effects


def _warn(code: str, backend: Backend, message: str) -> Warn:
    return Warn(code=code, subject=backend.backend_id, message=message)
