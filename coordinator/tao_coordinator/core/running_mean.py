"""A mean that begins as a plain one and then forgets."""


class RunningMean:
    """Plain mean of the first 1 / gain values, exponentially weighted from then on."""

    __slots__ = ("_gain", "_num_seen", "value")

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self._num_seen = 0
        self.value = 0.0
        """0 before anything was seen."""

    def see(self, value: float) -> None:
        """One more."""
        self._num_seen += 1
        self.value += max(self._gain, 1.0 / self._num_seen) * (value - self.value)

    @property
    def is_known(self) -> bool:
        """Anything was seen."""
        return self._num_seen > 0
