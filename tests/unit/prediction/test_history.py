"""Life tables against counting by hand, and what back-off, forgetting and merging keep."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.prediction import history as module
from tao_coordinator.prediction.history import History, LifeTable
from tao_coordinator.prediction.survival import DURATIONS, Curve, scale_free

PRIOR = scale_free(DURATIONS, 0.5)
durations = st.floats(0.0, 3_000.0)


def add(history: History, path: tuple[str, ...], duration_s: float, *, ended: bool = True) -> None:
    index = DURATIONS.index(duration_s)
    for table in history.levels(path):
        table.survived(0, index)
        table.close(index, ended=ended)


def curve_of(history: History, path: tuple[str, ...]) -> Curve:
    return history.curve(history.levels(path))


def p_by(curve: Curve, age: float, horizon: float) -> float:
    return 1.0 - math.exp(curve.hazard_to(age) - curve.hazard_to(age + horizon))


def test_table_counts_like_a_hand_made_life_table() -> None:
    table = LifeTable(DURATIONS)
    lived = [3, 3, 5, 8]
    cut_short = [4, 8]
    for index in lived:
        table.survived(0, index)
        table.close(index, ended=True)
    for index in cut_short:
        table.survived(0, index)
        table.close(index, ended=False)
    # Nobody is at risk before the first end; everybody reaches the first buckets.
    assert table.reached[0] == len(lived) + len(cut_short)
    assert table.reached[2] == 6.0
    # An end counts half in its bucket and a quarter in each neighbour.
    assert table.ended[2:7].tolist() == [0.5, 1.0, 0.75, 0.5, 0.25]
    assert table.ended.sum() == len(lived)
    # After everything that ended or was cut short, nobody is left.
    assert table.reached[10:].sum() == 0.0


@given(st.lists(durations, max_size=30))
def test_nobody_ends_who_did_not_reach(lengths_s: list[float]) -> None:
    table = LifeTable(DURATIONS)
    for duration_s in lengths_s:
        index = DURATIONS.index(duration_s)
        table.survived(0, index)
        table.close(index, ended=True)
    assert np.all(table.ended <= table.reached)
    assert np.all(np.diff(table.reached) <= 1e-12)


def test_an_end_that_arrives_late_takes_back_what_was_counted() -> None:
    counted, plain = LifeTable(DURATIONS), LifeTable(DURATIONS)
    counted.survived(0, 30)
    counted.survived(30, 12)
    counted.close(12, ended=True)
    plain.survived(0, 12)
    plain.close(12, ended=True)
    assert counted.reached.tolist() == plain.reached.tolist()
    assert counted.ended.tolist() == plain.ended.tolist()


def test_curve_of_many_samples_is_their_empirical_distribution() -> None:
    draw = random.Random(3)
    samples = [draw.lognormvariate(1.0, 1.0) for _ in range(900)]
    history = History(PRIOR)
    for sample in samples:
        add(history, ("tool", "key"), sample)
    curve = curve_of(history, ("tool", "key"))
    for age_s in (0.0, 1.0, 3.0, 8.0):
        alive = [sample for sample in samples if sample > age_s]
        share = sum(sample <= age_s + 2.0 for sample in alive) / len(alive)
        assert p_by(curve, age_s, 2.0) == pytest.approx(share, abs=0.05)


def test_unknown_key_follows_its_tool_and_unknown_tool_follows_all() -> None:
    history = History(PRIOR)
    for _ in range(200):
        add(history, ("Bash", "make"), 100.0)
        add(history, ("Read",), 0.01)
    unseen_key = curve_of(history, ("Bash", "never"))
    unseen_tool = curve_of(history, ("Never",))
    assert unseen_key.value_at(math.log(2.0)) == pytest.approx(100.0, rel=0.3)
    assert 0.4 < p_by(unseen_tool, 0.0, 1.0) < 0.6  # half of all calls are reads


def test_own_samples_outweigh_four_pseudo_counts() -> None:
    history = History(PRIOR)
    for _ in range(1000):
        add(history, ("Bash", "ls"), 0.1)
    few = [p_by(curve_of(history, ("Bash", "build")), 0.0, 1.0)]
    for _ in range(12):
        add(history, ("Bash", "build"), 50.0)
        few.append(p_by(curve_of(history, ("Bash", "build")), 0.0, 1.0))
    assert few[0] > 0.95
    assert few == sorted(few, reverse=True)
    # Bucket by bucket c / (c + 12) of the parent's hazard is left; over the first second this
    # still leaves a fair chance, but no longer a certainty.
    assert few[-1] < 0.75


@given(
    st.lists(st.tuples(st.sampled_from("ab"), durations), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_order_of_independent_samples_changes_nothing(
    samples: list[tuple[str, float]], draw: random.Random
) -> None:
    shuffled = list(samples)
    draw.shuffle(shuffled)
    one, other = History(PRIOR), History(PRIOR)
    for key, duration_s in samples:
        add(one, ("tool", key), duration_s)
    for key, duration_s in shuffled:
        add(other, ("tool", key), duration_s)
    for key in "ab":
        ends = curve_of(one, ("tool", key)).ends
        assert ends.tolist() == curve_of(other, ("tool", key)).ends.tolist()


@given(st.lists(durations, max_size=20), durations, st.floats(0.0, 500.0), st.floats(0.0, 100.0))
def test_a_cut_short_call_never_makes_an_end_more_likely(
    samples: list[float], cut_s: float, age_s: float, horizon_s: float
) -> None:
    without, with_it = History(PRIOR), History(PRIOR)
    for history in (without, with_it):
        for duration_s in samples:
            add(history, ("tool",), duration_s)
    add(with_it, ("tool",), cut_s, ended=False)
    before = p_by(curve_of(without, ("tool",)), age_s, horizon_s)
    assert p_by(curve_of(with_it, ("tool",)), age_s, horizon_s) <= before + 1e-12


def test_new_behaviour_replaces_the_old_one() -> None:
    history = History(PRIOR)
    for _ in range(5000):
        add(history, ("tool", "key"), 1.0)
    for _ in range(3000):
        add(history, ("tool", "key"), 60.0)
    curve = curve_of(history, ("tool", "key"))
    # Counts were halved at least twice since: at most a quarter of 1000 old calls is left.
    assert p_by(curve, 0.0, 2.0) < 0.3
    assert curve.value_at(math.log(2.0)) == pytest.approx(60.0, rel=0.3)


def test_halving_leaves_the_curve_where_it_was() -> None:
    table = LifeTable(DURATIONS)
    for index in [3, 9, 9, 20] * 100:
        table.survived(0, index)
        table.close(index, ended=True)
    before = table.curve(PRIOR).ends.copy()
    table.halve()
    table.close(60, ended=False)
    assert table.curve(PRIOR).ends == pytest.approx(before, abs=0.02)


def test_number_of_tables_is_bounded_and_the_used_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TABLES_MAX", 64)
    history = History(PRIOR)
    for number in range(1000):
        add(history, ("Bash", "pytest"), 7.0)
        add(history, ("Bash", f"script {number}"), 0.1)
        assert len(history) <= 64
    curve = curve_of(history, ("Bash", "pytest"))
    assert curve.value_at(math.log(2.0)) == pytest.approx(7.0, rel=0.3)


def split(samples: Sequence[tuple[str, float]]) -> tuple[History, History, History]:
    whole, left, right = History(PRIOR), History(PRIOR), History(PRIOR)
    for number, (key, duration_s) in enumerate(samples):
        add(whole, ("tool", key), duration_s)
        add(left if number % 2 else right, ("tool", key), duration_s)
    return whole, left, right


@given(st.lists(st.tuples(st.sampled_from("abc"), durations), max_size=40))
def test_merging_two_histories_is_having_seen_both(samples: list[tuple[str, float]]) -> None:
    whole, left, right = split(samples)
    merged = History(PRIOR)
    merged.merge(left.export())
    merged.merge(right.export())
    for key in "abc":
        expected = curve_of(whole, ("tool", key)).ends
        assert curve_of(merged, ("tool", key)).ends == pytest.approx(expected)


def test_merged_counts_are_forgotten_like_own_ones() -> None:
    history = History(PRIOR)
    for _ in range(900):
        add(history, ("tool",), 1.0)
    exported = history.export()
    for _ in range(20):
        history.merge(exported)
    assert history.levels(("tool",))[-1].uses < module.FORGET_AT
    assert history.levels(("tool",))[-1].reached[0] < module.FORGET_AT


EXPORT = History(PRIOR).export()


DAMAGED: list[dict[str, object]] = [
    {},
    {**EXPORT, "version": 99},
    {**EXPORT, "edges": [0.0, 1.0]},
    {**EXPORT, "tables": None},
    {**EXPORT, "tables": [[]]},
    {**EXPORT, "tables": [[["a"], 1.0, [1.0], [math.nan]]]},
    {**EXPORT, "tables": [[["a"], -1.0, [1.0], [1.0]]]},
    {**EXPORT, "tables": [[["a"], 1.0, [1.0], [True]]]},
    {**EXPORT, "tables": [[["a"], 1.0, [1.0] * 1000, [1.0]]]},
    {**EXPORT, "tables": [[[1], 1.0, [1.0], [1.0]]]},
    {**EXPORT, "tables": [[["a", "b", "c"], 1.0, [1.0], [1.0]]]},
    {**EXPORT, "tables": [[["a"], 1.0, [2.0], [1.0]], ["bad"]]},
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_damaged_export_is_refused_whole(damaged: dict[str, object]) -> None:
    history = History(PRIOR)
    with pytest.raises(ValueError, match="history"):
        history.merge(damaged)
    assert len(history) == 0
