"""Backends come, report, fall silent and leave."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tao_coordinator.core import ledger
from tao_coordinator.core.effects import BackendLeft, Effect, Warn
from tao_coordinator.core.events import (
    BackendAdded,
    BackendCacheSeen,
    BackendDrained,
    BackendRemoved,
    BackendSampled,
    BackendUnreachable,
)
from tao_coordinator.core.host_tier import HostTier
from tao_coordinator.core.intake import refuse_stranded
from tao_coordinator.core.model import Backend
from tao_coordinator.core.state import State


def added(state: State, event: BackendAdded, now_s: float) -> list[Effect]:
    """A new backend, or new settings of a known one; it is used after its first sample."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        backend = state.backends[event.backend_id] = Backend(
            backend_id=event.backend_id,
            base_url=event.base_url,
            capacity_override_tokens=None,
            capacity_scale=1.0,
        )
    elif backend.base_url != event.base_url:
        ledger.lose_backend(state, backend, now_s)
        backend.forget_engine()
    told = (event.capacity_tokens, event.capacity_scale, event.host_tier_tokens)
    host_tokens = None if backend.host is None else backend.host.tokens
    if told != (backend.capacity_override_tokens, backend.capacity_scale, host_tokens):
        backend.forget_capacity_factor()  # with a host tier it is that one's
    backend.base_url = event.base_url
    backend.capacity_override_tokens = event.capacity_tokens
    backend.capacity_scale = event.capacity_scale
    _tell_host_tier(backend, event)
    backend.affinity_headers = event.affinity_headers
    backend.served_by = event.served_by
    backend.draining = False
    state.fleet_changed()
    return _refuse_stranded(state)


def _tell_host_tier(backend: Backend, event: BackendAdded) -> None:
    tokens, rate = event.host_tier_tokens, event.host_reload_tokens_per_s
    if not tokens or not rate:
        backend.host = None
    elif backend.host is None:
        backend.host = HostTier(tokens, rate)
    else:  # what lies there is still there
        backend.host.tokens, backend.host.reload_tokens_per_s = tokens, rate


def drained(state: State, event: BackendDrained, now_s: float) -> list[Effect]:
    """No new lease there; running turns finish."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    backend.draining = True
    state.fleet_changed()
    return _refuse_stranded(state)


def removed(state: State, event: BackendRemoved, now_s: float) -> list[Effect]:
    """Forget a backend that was drained, once nothing runs there."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return [BackendLeft(backend_id=event.backend_id)]
    if not backend.draining or backend.foreign.num_own:
        return []
    ledger.forget_backend(state, backend)
    state.fleet_changed()
    return [BackendLeft(backend_id=event.backend_id)]


def sampled(state: State, event: BackendSampled, now_s: float) -> list[Effect]:
    """The engine answered: it is alive, and this is what it says of itself."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    effects = _note_life(state, backend, event, now_s)
    backend.sampled_s = now_s
    backend.running, backend.waiting = event.running, event.waiting
    backend.kv_usage_ratio = event.kv_usage_ratio
    backend.prefix_cache_queries_tokens = event.prefix_cache_queries_tokens
    backend.prefix_cache_hits_tokens = event.prefix_cache_hits_tokens
    backend.preemptions = event.preemptions
    could_take = (backend.models, backend.capacity_tokens)
    if event.models is not None:
        backend.models = event.models
    if event.capacity_tokens is not None and event.capacity_tokens > 0:
        # A missing value in one sample does not make a known pool unknown.
        backend.capacity_reported_tokens = event.capacity_tokens
    if (backend.models, backend.capacity_tokens) != could_take:
        state.fleet_changed()
        effects += _refuse_stranded(state)
    backend.foreign.sampled(
        running=event.running,
        waiting=event.waiting,
        kv_usage_ratio=event.kv_usage_ratio,
        capacity_tokens=backend.capacity_tokens,
    )
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


def _note_life(state: State, backend: Backend, event: BackendSampled, now_s: float) -> list[Effect]:
    """Hysteresis of health; and a restart that no failed poll has shown."""
    effects: list[Effect] = []
    if not backend.healthy:
        backend.successes += 1
        # A backend that was never lost is used at once; a lost one has to prove itself.
        if backend.sampled_s is None or backend.successes >= state.parameters.reachable_limit:
            backend.healthy = True
            state.fleet_changed()
            effects.append(_warn("backend_healthy", backend, f"{backend.base_url} answers"))
    if backend.failures:
        backend.failures = 0
        state.fleet_changed()
    before, now = backend.prefix_cache_queries_tokens, event.prefix_cache_queries_tokens
    if backend.healthy and before is not None and now is not None and now < before:
        ledger.lose_backend(state, backend, now_s)
        effects.append(_warn("backend_restarted", backend, "was restarted: its cache starts empty"))
    return effects


def cache_seen(state: State, event: BackendCacheSeen, now_s: float) -> list[Effect]:
    """The engine's own events about its cache correct what is predicted of it."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    if event.was_cleared:
        ledger.lose_backend(state, backend, now_s)
    if event.is_lost:
        backend.seen_tokens.clear()
    for session_id, tokens in event.sessions:
        if tokens is None:
            backend.seen_tokens.pop(session_id, None)
        else:
            backend.seen_tokens[session_id] = tokens
    return []


def unreachable(state: State, event: BackendUnreachable, now_s: float) -> list[Effect]:
    """A poll failed; several in a row, or one before the first success, make it unhealthy."""
    backend = state.backends.get(event.backend_id)
    if backend is None:
        return []
    backend.failures += 1
    backend.successes = 0
    if backend.failures == 1:
        state.fleet_changed()
    if not backend.healthy:
        if backend.sampled_s is None:
            return [_warn("backend_silent", backend, f"{backend.base_url}: {event.reason}")]
        return []
    if backend.failures < state.parameters.unreachable_limit:
        return []
    backend.healthy = False
    state.fleet_changed()
    # What it counted before says nothing about the engine that comes back.
    backend.prefix_cache_queries_tokens = None
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


Handler = Callable[[State, Any, float], list[Effect]]

HANDLERS: Final[Mapping[type, Handler]] = {
    BackendAdded: added,
    BackendCacheSeen: cache_seen,
    BackendDrained: drained,
    BackendRemoved: removed,
    BackendSampled: sampled,
    BackendUnreachable: unreachable,
}
"""What each event about a backend does."""
