import itertools

from tao_client._breaker import FIRST_PROBE_S, LONGEST_PROBE_S, Breaker


def test_breaker_opens_and_closes_and_says_what_was_news() -> None:
    breaker = Breaker()
    assert not breaker.record_probe_answered(), "it was closed already"
    assert breaker.record_no_answer()
    assert not breaker.record_no_answer()
    assert breaker.is_open
    assert breaker.record_probe_answered()
    assert not breaker.record_probe_answered()
    assert not breaker.is_open


def test_pause_doubles_up_to_half_a_minute() -> None:
    breaker = Breaker()
    pauses = [breaker.next_pause_s() for _ in range(8)]
    assert pauses[0] == FIRST_PROBE_S == 0.5
    assert pauses[-1] == LONGEST_PROBE_S == 30
    assert all(later == min(2 * earlier, 30) for earlier, later in itertools.pairwise(pauses))


def test_pause_starts_anew_only_after_an_answered_lease_request() -> None:
    breaker = Breaker()
    breaker.next_pause_s()
    breaker.record_no_answer()
    breaker.record_probe_answered()
    assert breaker.next_pause_s() == 1.0, "it answers probes, but does it answer requests?"
    breaker.record_answer()
    assert breaker.next_pause_s() == 0.5
