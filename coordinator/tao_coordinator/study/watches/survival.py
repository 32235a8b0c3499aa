"""What is left of an idle session's cache, as a function of how long it was idle.

One observation per turn that came back to the backend of the turn before: of the private tokens
that could have been reused, the share that the engine found; and the seconds from the last token of
the reply before to the moment the engine looked (tool, hold and the engine's own queue together).

*Buckets* double in width. *Median* of each with a 95 % bootstrap interval; sessions are resampled,
not turns, since turns of one session are alike. *Fit*: 2^(-x / h) through the medians of the filled
buckets, least squares, in h alone; its interval from the same resamples. It describes, as the
paper's does. *Cliff*: 1 up to some time and 0 after it, also one parameter, fitted alike. Where the
cliff fits better, the cache does not decay: it is there until the LRU comes to it.
"""

from typing import Final, NamedTuple

import numpy as np

from tao_coordinator.simulation.run_record import Floats, RunRecord
from tao_coordinator.study.watches.watch import Series, Watch

PRIVATE_TOKENS_MIN: Final = 1_024
"""Of less, a block more or less is a large share."""
IN_BUCKET_MIN: Final = 8
"""Turns in a bucket that counts as filled."""
RESAMPLES: Final = 400
PAPER_HALF_LIFE_S: Final = 10.0
EDGES_S: Final = (0.0, *(0.5 * 2.0**k for k in range(13)))
_SEED: Final = 20_261
_TIMES_S: Final = np.geomspace(0.1, 20_000.0, 400)
_ALL: Final = 0.95
_NOTHING: Final = 0.05


class Observed(NamedTuple):
    """Turns that came home; all arrays [n]."""

    session: Floats
    idle_s: Floats
    private_tokens: Floats
    found_tokens: Floats
    credit_tokens: Floats
    """What the coordinator expected, from its shadow of the engine's LRU."""

    @property
    def share(self) -> Floats:
        """Found of what could have been."""
        return self.found_tokens / self.private_tokens


class Fit(NamedTuple):
    """One parameter through the medians."""

    at_s: float
    """Half-life, or where the cliff is."""
    r_squared: float


def observed(record: RunRecord) -> Observed:
    """Read the turns of a run."""
    rows: list[tuple[float, ...]] = []
    replied_s: dict[int, float] = {}
    for turn in sorted(record.turns, key=lambda turn: (turn.session, turn.turn)):
        private = turn.reusable_tokens - turn.shared_tokens
        if turn.turn and not turn.moved and private >= PRIVATE_TOKENS_MIN:
            found = min(private, max(0, turn.cached_tokens - turn.shared_tokens))
            idle_s = turn.admitted_s - replied_s[turn.session]
            rows.append((turn.session, idle_s, private, found, min(private, turn.credit_tokens)))
        replied_s[turn.session] = turn.finished_s
    return Observed(*np.array(rows, np.float64).reshape(-1, 5).T)


def medians(idle_s: Floats, share: Floats) -> tuple[Floats, Floats]:
    """[buckets] median seconds and median share; NaN where a bucket is not filled."""
    where = np.searchsorted(EDGES_S, idle_s, side="right") - 1
    found = np.full((2, len(EDGES_S)), np.nan)
    for bucket in range(len(EDGES_S)):
        inside = where == bucket
        if inside.sum() >= IN_BUCKET_MIN:
            found[:, bucket] = np.median(idle_s[inside]), np.median(share[inside])
    return found[0], found[1]


def fit(at_s: Floats, share: Floats, *, as_cliff: bool = False) -> Fit | None:
    """Least squares through the filled buckets; `None`: fewer than three, or nothing is lost."""
    filled = ~np.isnan(share)
    if filled.sum() < 3 or share[filled].min() > _ALL:
        return None
    times_s = _TIMES_S[:, None]
    x = at_s[filled][None, :]
    curves = (x < times_s).astype(np.float64) if as_cliff else 2.0 ** (-x / times_s)
    squares = ((curves - share[filled]) ** 2).sum(axis=1)
    best = int(squares.argmin())
    if as_cliff:  # all between two medians are equally good: the middle of them
        equal = (squares == squares[best]).nonzero()[0]
        best = int(equal[len(equal) // 2])
    spread = float(((share[filled] - share[filled].mean()) ** 2).sum())
    return Fit(float(_TIMES_S[best]), 1.0 - float(squares[best]) / spread if spread else 0.0)


class SurvivalWatch(Watch):
    """Looks at the turns once the run is over."""

    def measures(self, record: RunRecord) -> dict[str, float]:
        """The fits, and how far three predictions of the cache were off, over private tokens."""
        seen = observed(record)
        if not len(seen.share):
            return {}
        share, private = seen.share, float(seen.private_tokens.sum())
        found = {
            "returns": float(len(share)),
            "all_or_nothing": float(((share > _ALL) | (share < _NOTHING)).mean()),
            "survived": float(seen.found_tokens.sum()) / private,
            "shadow_error": float(np.abs(seen.found_tokens - seen.credit_tokens).sum()) / private,
            "published_decay_error": _decay_error(seen, PAPER_HALF_LIFE_S),
        }
        middle = medians(seen.idle_s, share)
        decay, cliff = fit(*middle), fit(*middle, as_cliff=True)
        if decay is None or cliff is None:
            return found
        lives = [f.at_s for f in (fit(*m) for m in _resampled(seen)) if f is not None]
        low, high = np.percentile(lives, [2.5, 97.5]) if lives else (np.nan, np.nan)
        return found | {
            "half_life_s": decay.at_s,
            "half_life_low_s": float(low),
            "half_life_high_s": float(high),
            "decay_r2": decay.r_squared,
            "cliff_s": cliff.at_s,
            "cliff_r2": cliff.r_squared,
            "fitted_decay_error": _decay_error(seen, decay.at_s),
        }

    def series(self, record: RunRecord) -> dict[str, Series]:
        """`survival`: per filled bucket median seconds, median share, its interval, turns."""
        seen = observed(record)
        if not len(seen.share):
            return {}
        at_s, share = medians(seen.idle_s, seen.share)
        again = np.array([middle[1] for middle in _resampled(seen)])
        number = np.histogram(seen.idle_s, (*EDGES_S, np.inf))[0]
        return {
            "survival": [
                [
                    float(at_s[b]),
                    float(share[b]),
                    *(float(np.nanpercentile(again[:, b], p)) for p in (2.5, 97.5)),
                    float(number[b]),
                ]
                for b in (~np.isnan(share)).nonzero()[0].tolist()
            ]
        }


def _decay_error(seen: Observed, half_life_s: float) -> float:
    expected = seen.private_tokens * 2.0 ** (-seen.idle_s / half_life_s)
    return float(np.abs(seen.found_tokens - expected).sum() / seen.private_tokens.sum())


def _resampled(seen: Observed) -> list[tuple[Floats, Floats]]:
    """Medians of samples in which sessions were drawn with replacement."""
    draw = np.random.default_rng(_SEED)
    names = np.unique(seen.session)
    turns = [(seen.session == name).nonzero()[0] for name in names]
    found: list[tuple[Floats, Floats]] = []
    for _ in range(RESAMPLES):
        picks = np.concatenate([turns[i] for i in draw.integers(0, len(names), len(names))])
        found.append(medians(seen.idle_s[picks], seen.share[picks]))
    return found
