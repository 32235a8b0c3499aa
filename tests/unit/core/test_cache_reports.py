"""Absent cached counts: a miss, or an engine that does not tell."""

from tao_coordinator.core.cache_reports import SILENCE_MAX, SURPRISES_MAX, CacheReports


def test_before_the_first_count_absent_is_unknown() -> None:
    reports = CacheReports[str]()
    assert reports.take("a", None, is_hit_certain=False) == []
    assert reports.take("b", 7, is_hit_certain=False) == [("b", 7)]


def told() -> CacheReports[str]:
    reports = CacheReports[str]()
    reports.take("first", 1, is_hit_certain=False)
    return reports


def test_afterwards_absent_is_zero_at_once_where_it_is_no_surprise() -> None:
    assert told().take("a", None, is_hit_certain=False) == [("a", 0)]


def test_surprising_absence_waits_for_the_engine_to_speak() -> None:
    """A prompt that was rewritten looks like it: one is no reason to mistrust the engine."""
    reports = told()
    assert reports.take("rewritten", None, is_hit_certain=True) == []
    assert reports.take("cold", None, is_hit_certain=False) == []
    assert reports.take("hit", 9, is_hit_certain=True) == [
        ("rewritten", 0),
        ("cold", 0),
        ("hit", 9),
    ]
    assert reports.take("cold", None, is_hit_certain=False) == [("cold", 0)]


def test_engine_that_surprises_too_often_in_a_row_does_not_tell() -> None:
    reports = told()
    for n in range(SURPRISES_MAX):
        assert reports.take(str(n), None, is_hit_certain=True) == []
    assert not reports.tells
    assert reports.take("unknown", None, is_hit_certain=False) == []
    assert reports.take("again", 5, is_hit_certain=True) == [("again", 5)]
    assert reports.take("cold", None, is_hit_certain=False) == [("cold", 0)]


def test_silence_is_bounded() -> None:
    """Few surprises among many absences: those were misses."""
    reports = told()
    assert reports.take("0", None, is_hit_certain=True) == []
    for n in range(1, SILENCE_MAX - 1):
        assert reports.take(str(n), None, is_hit_certain=False) == []
    found = reports.take("last", None, is_hit_certain=False)
    assert (len(found), found[0], found[-1]) == (SILENCE_MAX, ("0", 0), ("last", 0))
    assert reports.tells
