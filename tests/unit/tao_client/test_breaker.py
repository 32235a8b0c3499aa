import itertools
import logging

import pytest

from tao_client._breaker import FIRST_PROBE_S, LONGEST_PROBE_S, Breaker


def test_breaker_opens_once_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    breaker = Breaker("http://c:8700")
    assert not breaker.is_open
    assert breaker.record_no_answer("ReadTimeout")
    assert not breaker.record_no_answer("ReadTimeout")
    assert breaker.is_open
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "http://c:8700" in caplog.text
    assert "ReadTimeout" in caplog.text


def test_breaker_closes_once_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    breaker = Breaker("http://c:8700")
    breaker.record_probe_answered()
    assert not caplog.records, "it was closed already"
    breaker.record_no_answer("x")
    breaker.record_probe_answered()
    breaker.record_probe_answered()
    assert not breaker.is_open
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]


def test_pause_doubles_up_to_half_a_minute() -> None:
    breaker = Breaker("http://c:8700")
    pauses = [breaker.next_pause_s() for _ in range(8)]
    assert pauses[0] == FIRST_PROBE_S == 0.5
    assert pauses[-1] == LONGEST_PROBE_S == 30
    assert all(later == min(2 * earlier, 30) for earlier, later in itertools.pairwise(pauses))


def test_pause_starts_anew_only_after_an_answered_lease_request() -> None:
    breaker = Breaker("http://c:8700")
    breaker.next_pause_s()
    breaker.record_no_answer("x")
    breaker.record_probe_answered()
    assert breaker.next_pause_s() == 1.0, "it answers probes, but does it answer requests?"
    breaker.record_answer()
    assert breaker.next_pause_s() == 0.5
