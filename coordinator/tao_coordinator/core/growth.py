"""Room that the seats of now will need before they are given up: the expected peak and a margin.

Sessions grow while others end. With `p_i(k)` the probability that session i takes k more turns and
`c_i` its tokens now, what is seated after k turns is

    M(k) = sum_i p_i(k) (c_i + g k)
    V(k) = sum_i p_i(k) (1 - p_i(k)) (c_i + g k)^2 + p_i(k) k s^2

in expectation and variance, `g` and `s` mean and standard deviation of the growth per turn. Beside
n seats on m backends, each alone with its share of the sum,

    reserve = max_k (M(k) + z sqrt(m V(k)) - M(0)) / n           tokens per seat

is kept free. Few seats, or seats that are all young, need nearly their whole growth each; a hundred
at all ages pool it. `p_i(k)` comes from the turns of ended sessions, and of live ones so far
(Kaplan and Meier), with a geometric prior.

Neither paper has this: TAO reserves 512 tokens per session, CONCUR nothing.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

HORIZONS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of further turns at which the peak is looked for."""
TURNS_MAX: Final = 256
"""Longer sessions count as this long."""
ENDED_MAX: Final = 500
"""Ended sessions that are remembered."""
PRIOR_END: Final = 1.0 / 25.0
"""Probability that a session ends after a turn, before anything is known."""
PRIOR_SESSIONS: Final = 5.0
"""Sessions that the prior counts for, at each number of turns."""
GAIN: Final = 0.02
HAZARD_MAX: Final = 0.95


class SessionGrowth:
    """What was learned of lengths and growth; tokens are integers, turns completed ones."""

    __slots__ = ("_ended", "_mean", "_square_mean")

    def __init__(self) -> None:
        self._ended: deque[int] = deque(maxlen=ENDED_MAX)
        self._mean = 1_200.0
        self._square_mean = 2_400.0**2

    @property
    def mean_tokens(self) -> float:
        """Growth per turn, rare jumps included."""
        return self._mean

    @property
    def num_ended(self) -> int:
        """Ended sessions that are remembered."""
        return len(self._ended)

    def grew(self, tokens: int) -> None:
        """A reply has made its session's context so much longer; a shorter one grew by 0."""
        self._mean += GAIN * (max(0, tokens) - self._mean)
        self._square_mean += GAIN * (max(0, tokens) ** 2 - self._square_mean)

    def ended(self, turns: int) -> None:
        """A session is over after so many turns."""
        self._ended.append(min(turns, TURNS_MAX))

    def reserve_tokens(
        self, seats: Iterable[tuple[int, int]], growth_tokens: float, num_backends: int, z: float
    ) -> float | None:
        """Tokens to keep free beside each seat; `None`: there is none.

        Args:
            seats: completed turns and tokens of each.
            growth_tokens: g, typical growth per turn.
            num_backends: m, over which the seats are spread.
            z: standard deviations kept beside the expected peak.
        """
        ages: dict[int, list[float]] = {}
        for turns, tokens in seats:
            row = ages.setdefault(min(turns, TURNS_MAX), [0.0, 0.0, 0.0])
            row[0] += 1.0
            row[1] += tokens
            row[2] += float(tokens) ** 2
        if not ages:
            return None
        survival = self._survival({age: row[0] for age, row in ages.items()})
        spread = max(0.0, self._square_mean - self._mean**2)
        age = np.array(list(ages))[:, None]
        number, tokens, squares = np.array(list(ages.values())).T[:, :, None]
        k = np.array(HORIZONS)
        p = survival[age + k] / survival[age]  # [ages, horizons]
        grown = growth_tokens * k
        mean = (p * (tokens + number * grown)).sum(axis=0)
        by_growth = p * number * k * spread
        by_ends = p * (1.0 - p) * (squares + 2.0 * grown * tokens + number * grown**2)
        variance = (by_growth + by_ends).sum(axis=0)
        peak = mean + z * np.sqrt(num_backends * variance) - tokens.sum()
        return max(0.0, float(peak.max())) / float(number.sum())

    def _survival(self, live: dict[int, float]) -> NDArray[np.float64]:
        """[turns] probability that a session takes more than so many."""
        ended, seen = np.zeros((2, TURNS_MAX + 1))
        for turns, count in Counter(self._ended).items():
            ended[turns] = count
        for turns, number in live.items():
            seen[turns] = number
        # A live session has shown that it did not end before the turns that it has taken.
        at_least = ended + np.append(seen[1:], 0.0)
        reached = at_least[::-1].cumsum()[::-1]
        hazards = (ended + PRIOR_SESSIONS * PRIOR_END) / (reached + PRIOR_SESSIONS)
        hazards = np.append(np.minimum(HAZARD_MAX, hazards[1:]), [PRIOR_END] * HORIZONS[-1])
        return np.append(1.0, (1.0 - hazards).cumprod())
