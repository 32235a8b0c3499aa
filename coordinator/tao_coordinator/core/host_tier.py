"""Host memory below a backend's pool: what the operator told of it, and what lies there.

An engine that offloads copies each block to the host as it is computed (vLLM's OffloadingConnector,
HiCache, LMCache), so the tier holds again what the pool holds, and more only as far as it is
larger.
What it holds is predicted as for the pool, by an LRU of its size over the same calls.

Two prices of losing a cache follow: the pool's content comes back in `pool / reload rate`; what the
host has lost too has to be prefilled again.
"""

from dataclasses import dataclass, field

from tao_coordinator.core.shadow_cache import ShadowCache


@dataclass(slots=True)
class HostTier:
    """One backend's host tier."""

    tokens: int
    """KV tokens that it holds, those that the pool holds too included; > 0."""
    reload_tokens_per_s: float
    """From there to the pool; > 0."""
    cache: ShadowCache = field(default_factory=ShadowCache)
    """What is predicted to lie there; running calls count as there."""
