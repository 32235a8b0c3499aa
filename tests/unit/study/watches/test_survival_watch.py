"""Made-up returns whose law is known."""

from statistics import median

import numpy as np
import pytest

from tao_coordinator.simulation.run_record import RunRecord, TurnRow
from tao_coordinator.study.watches.survival import EDGES_S, SurvivalWatch, fit, medians, observed


def returns(*sessions: list[tuple[float, float]]) -> RunRecord:
    """Per session (idle seconds, share that survived), one turn each after a first one."""
    turns: list[TurnRow] = []
    for number, pairs in enumerate(sessions):
        now_s = 0.0
        for turn, (idle_s, share) in enumerate([(0.0, 0.0), *pairs]):
            now_s += idle_s
            found = 1_000 + round(10_000 * share)
            turns.append(
                TurnRow(
                    session=number, turn=turn, backend=0, asked_s=now_s, granted_s=now_s,
                    admitted_s=now_s, first_token_s=now_s, finished_s=now_s + 1.0,
                    input_tokens=12_000, output_tokens=5, cached_tokens=found,
                    reusable_tokens=11_000 if turn else 1_000, shared_tokens=1_000,
                    credit_tokens=9_000, moved=False,
                )
            )  # fmt: skip
            now_s += 1.0
    return RunRecord(turns=turns)


def drawn(law: "list[float]", seed: int = 3) -> list[tuple[float, float]]:
    idle = np.random.default_rng(seed).uniform(0.5, 60.0, len(law)).tolist()
    return list(zip(idle, law, strict=True))


def test_first_turns_moved_ones_and_small_ones_tell_nothing() -> None:
    record = returns([(3.0, 0.25), (4.0, 1.0)])
    seen = observed(record)
    assert seen.idle_s.tolist() == [3.0, 4.0]
    assert seen.share.tolist() == [0.25, 1.0]
    record.turns[1] = record.turns[1]._replace(moved=True)
    record.turns[2] = record.turns[2]._replace(reusable_tokens=1_500)
    assert len(observed(record).share) == 0
    assert SurvivalWatch().measures(record) == {}


def test_medians_are_those_of_each_bucket() -> None:
    idle = np.random.default_rng(1).uniform(0.0, 40.0, 200)
    share = np.random.default_rng(2).random(200)
    at_s, middle = medians(idle, share)
    for bucket, low in enumerate(EDGES_S):
        high = EDGES_S[bucket + 1] if bucket + 1 < len(EDGES_S) else float("inf")
        inside = [s for x, s in zip(idle, share, strict=True) if low <= x < high]
        if len(inside) < 8:
            assert np.isnan(middle[bucket])
        else:
            assert middle[bucket] == pytest.approx(median(inside))
            assert low <= at_s[bucket] < high


def test_a_decay_is_found_with_its_half_life_and_a_cliff_is_told_from_it() -> None:
    times_s = np.random.default_rng(5).uniform(0.5, 60.0, (12, 40))
    decaying = returns(*[[(x, 2.0 ** (-x / 7.0)) for x in row] for row in times_s.tolist()])
    found = SurvivalWatch().measures(decaying)
    assert found["half_life_s"] == pytest.approx(7.0, rel=0.05)
    assert found["half_life_low_s"] <= found["half_life_s"] <= found["half_life_high_s"]
    assert found["decay_r2"] > 0.99 > found["cliff_r2"]
    falling = returns(*[[(x, float(x < 20.0)) for x in row] for row in times_s.tolist()])
    found = SurvivalWatch().measures(falling)
    assert found["cliff_r2"] > 0.999 > found["decay_r2"]
    assert 12.0 < found["cliff_s"] < 32.0  # between the medians of the buckets around it
    assert found["all_or_nothing"] == 1.0


def test_nothing_lost_has_no_half_life() -> None:
    times_s = np.random.default_rng(5).uniform(0.5, 60.0, 80).tolist()
    found = SurvivalWatch().measures(returns([(x, 1.0) for x in times_s]))
    assert "half_life_s" not in found
    assert found["survived"] == 1.0
    assert fit(*medians(np.array(times_s), np.ones(80))) is None


def test_errors_by_hand() -> None:
    found = SurvivalWatch().measures(returns([(10.0, 1.0), (20.0, 0.0)]))
    # Half and a quarter were expected by h = 10 s; 9,000 of 10,000 by the shadow, twice.
    assert found["published_decay_error"] == pytest.approx((0.5 + 0.25) / 2)
    assert found["shadow_error"] == pytest.approx((0.1 + 0.9) / 2)


def test_series_has_the_filled_buckets_with_their_intervals() -> None:
    rows = SurvivalWatch().series(returns(drawn([0.5] * 100), drawn([0.9] * 100, 4)))["survival"]
    assert sum(row[4] for row in rows) <= 200
    for at_s, middle, low, high, number in rows:
        assert 0.5 <= at_s <= 60.0 and number >= 8
        assert 0.5 <= low <= middle <= high <= 0.9
