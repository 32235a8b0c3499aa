"""Every constant of the decision, with its unit, its source and what it is for.

Frozen and checked at construction. Durations are seconds of the engines' time: against a simulated
engine that runs N times faster, `scaled(N)` divides them all.
Sources: "study" is the policy study whose figures `docs/scheduling.md` repeats.
"""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Constants of admission, placement, release and bookkeeping."""

    budget_ratio: float = 0.95
    """theta: share of a backend's pool that planned grants may commit, growth included; (0, 1.5].
    Study: 1.1 costs 9-25 % throughput, 0.8 costs 2-12 %."""
    growth_turns: float = 12.0
    """kappa: turns of typical growth reserved per seat. Study: without it -14..-17 %."""
    growth_margin: float = 3.0
    """Most of z, standard deviations kept free beside the expected peak of all seats together
    (`core.growth`); the whole growth of each where that is less."""
    growth_margin_gain: float = 2.0
    """z per unit of the price ratio (`core.turn_cycle`), up to `growth_margin`."""
    growth_pool_ratio: float = 0.3
    """Share of the smallest pool that one seat's growth reserve takes at most; (0, 1]. Matters on
    toy engines only: the priors of a large one would leave room for one session at a time."""
    growth_tokens_max: int = 1500
    """Clip of one turn's growth before it enters the average; rare jumps would over-reserve."""
    released_weight: float = 0.3
    """nu: share of released seats' tokens still counted against a *new* session; [0, 1]."""
    credit_bucket_tokens: int = 2048
    """Cache credit is compared in buckets of this size: by the token it leaves readiness inert."""
    overtake_limit: int = 3
    """Held started turns that may stay unplaced before new sessions must wait too."""
    resident_ratio: float = 0.5
    """A session is resident where at least this share of its context is predicted to be cached."""

    hold_soft_s: float = 60.0
    """A started session held longer is overdue: it leads the plan and may be forced in."""
    hold_hard_s: float = 120.0
    """A started session held longer is granted, budget or not."""
    forced_share: float = 0.2
    """phi: share of a backend's time that forced refills may take between soft and hard bound."""
    new_wait_s_max: float = 900.0
    """A new session held longer is rejected, and asked back within a minute (`core.intake`)."""
    timeout_margin_s: float = 5.0
    """A new session is rejected this long before its caller's own time-out."""
    tenant_weights: tuple[tuple[str, float], ...] = ()
    """Shares of the fleet by tenant name; a tenant that is not named weighs 1."""
    queue_limit: int = 10_000
    """Held turns; one more is rejected."""

    release_grace_s: float = 1.0
    """A seat is never released within the first second of a tool: two thirds of calls end in it."""
    refill_s_prior: float = 60.0
    """R, the price of losing a cache, until a prefill rate has been learned."""
    refill_s_min: float = 5.0
    refill_s_max: float = 300.0

    capacity_integral_gain: float = 0.3
    """K_i of the capacity controller, per window (`scheduling/control/capacity_estimate.py`)."""
    capacity_proportional_gain: float = 0.0
    """K_p; 0 since the integral alone does as well and has no bump."""
    capacity_window_tokens: int = 200_000
    """Prompt tokens of evidence per correction."""
    capacity_dead_zone: float = 0.02
    """Share of prompt tokens that may surprise without a correction."""
    capacity_error_max: float = 0.3
    """Clip of the error of one window."""
    capacity_factor_min: float = 0.4
    """Lower limit of gamma."""
    capacity_factor_max: float = 1.6
    """Upper limit of gamma."""

    start_within_s: float = 5.0
    """A lease must be renewed or released for the first time within this."""
    lease_silence_s: float = 60.0
    """A running lease that nobody renewed for this long is lost."""
    poll_grace_s: float = 20.0
    """A held turn whose caller does not ask again for this long is abandoned."""
    seat_idle_s_max: float = 1800.0
    """A session without any activity for this long is forgotten."""
    tool_s_max: float = 7200.0
    """An open tool call without time-out is forgotten after this."""
    unreachable_limit: int = 3
    """Failed polls in a row that make a backend unhealthy."""
    reachable_limit: int = 2
    """Good polls in a row that make a lost backend healthy again."""
    tick_s: float = 1.0
    """While turns are held, release and bounds are looked at this often."""

    def __post_init__(self) -> None:
        """Reject values that would break an invariant."""
        for name in ("growth_pool_ratio", "released_weight", "resident_ratio", "forced_share"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {value}")
        if self.budget_ratio > 1.5:
            raise ValueError(f"budget_ratio must be in (0, 1.5], got {self.budget_ratio}")
        may_be_zero = {
            "released_weight",
            "growth_margin",
            "growth_margin_gain",
            "growth_turns",
            "overtake_limit",
            "release_grace_s",
            "capacity_integral_gain",
            "capacity_proportional_gain",
            "capacity_dead_zone",
        }
        for tenant, weight in self.tenant_weights:
            if not weight > 0:
                raise ValueError(f"weight of tenant {tenant!r} must be positive, got {weight}")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "tenant_weights":
                continue
            if not (value > 0 or (value == 0 and item.name in may_be_zero)):
                raise ValueError(f"{item.name} must be positive, got {value}")
        if self.hold_hard_s < self.hold_soft_s:
            raise ValueError("hold_hard_s must not be below hold_soft_s")
        if self.refill_s_max < self.refill_s_min:
            raise ValueError("refill_s_max must not be below refill_s_min")
        if not self.capacity_factor_min <= 1.0 <= self.capacity_factor_max:
            raise ValueError("capacity_factor_min..max must contain 1")

    def scaled(self, time_scale: float) -> "Parameters":
        """Constants for engines that run `time_scale` times faster than real ones.

        The lease protocol's own times stay: they bound the callers' behaviour, which is not scaled.
        """
        if not time_scale > 0:
            raise ValueError(f"time_scale must be positive, got {time_scale}")
        names = (
            "hold_soft_s",
            "hold_hard_s",
            "new_wait_s_max",
            "release_grace_s",
            "refill_s_prior",
            "refill_s_min",
            "refill_s_max",
            "tick_s",
        )
        return replace(self, **{name: getattr(self, name) / time_scale for name in names})
