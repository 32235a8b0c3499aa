"""Which leases are alive, as far as the wire needs to know: `renew` of any other answers 404.

The engine decides about leases; it has no answer to a renewal, so the shell keeps the same two time
limits beside it. Bounded: expired entries are swept whenever the table has doubled.
"""

from tao_coordinator.core.parameters import Parameters

_SWEEP_SIZE_MIN = 1_024


class LeaseTable:
    """Expiry times of granted leases. All times are seconds of the runtime's clock."""

    def __init__(self, parameters: Parameters) -> None:
        self._start_within_s = parameters.start_within_s
        self._lease_silence_s = parameters.lease_silence_s
        self._expires_at_s: dict[str, float] = {}
        self._sweep_size = _SWEEP_SIZE_MIN

    def __len__(self) -> int:
        return len(self._expires_at_s)

    def add(self, lease_id: str, now_s: float) -> bool:
        """Note a grant; false when this lease is already known (the answer to a poll)."""
        if lease_id in self._expires_at_s:
            return False
        self._expires_at_s[lease_id] = now_s + self._start_within_s
        if len(self._expires_at_s) >= self._sweep_size:
            self._sweep(now_s)
        return True

    def renew(self, lease_id: str, now_s: float) -> bool:
        """Prolong a lease; false when it is unknown or over."""
        expires_at_s = self._expires_at_s.get(lease_id)
        if expires_at_s is None:
            return False
        if expires_at_s < now_s:
            del self._expires_at_s[lease_id]
            return False
        self._expires_at_s[lease_id] = now_s + self._lease_silence_s
        return True

    def remove(self, lease_id: str) -> None:
        """Forget a released lease; unknown ones are ignored."""
        self._expires_at_s.pop(lease_id, None)

    def _sweep(self, now_s: float) -> None:
        self._expires_at_s = {
            lease_id: expires_at_s
            for lease_id, expires_at_s in self._expires_at_s.items()
            if expires_at_s >= now_s
        }
        self._sweep_size = max(_SWEEP_SIZE_MIN, 2 * len(self._expires_at_s))
