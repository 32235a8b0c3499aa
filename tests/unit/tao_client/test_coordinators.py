"""Which of several coordinators is asked."""

import logging

import pytest

from tao_client._coordinators import Coordinators

A, B, C = "http://a", "http://b", "http://c"


def log_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records]


def test_first_that_answers_is_in_charge() -> None:
    some = Coordinators([A, B, C])
    assert some.present() == [A, B, C]
    assert some.record_no_answer(A, "x")
    assert not some.record_no_answer(A, "x")
    assert some.in_charge() == B
    some.record_no_answer(B, "x")
    assert some.in_charge() == C
    some.record_no_answer(C, "x")
    assert some.are_away
    assert some.in_charge() is None
    some.record_probe_answered(B)
    assert some.in_charge() == B
    assert not some.are_away
    some.record_probe_answered(A)
    assert some.in_charge() == A, "it has its place again"


def test_named_leader_comes_first_until_it_falls_away() -> None:
    some = Coordinators([A, B, C])
    some.record_no_answer(A, "not_leader", leader=C)
    assert some.present() == [C, B]
    some.record_no_answer(C, "x")
    assert some.in_charge() == B
    some.record_probe_answered(C)
    assert some.in_charge() == B


def test_one_that_is_ready_again_puts_an_end_to_what_was_said_of_the_leader() -> None:
    some = Coordinators([A, B, C])
    some.record_no_answer(A, "not_leader", leader=C)
    some.record_probe_answered(A)
    assert some.in_charge() == A


def test_leader_that_is_away_leads_when_it_is_back() -> None:
    some = Coordinators([A, B, C])
    some.record_no_answer(B, "x")
    some.record_no_answer(A, "not_leader", leader=B)
    assert some.in_charge() == C
    some.record_probe_answered(B)
    assert some.present() == [B, C]


def test_nobody_outside_the_list_is_followed() -> None:
    some = Coordinators([A, B])
    some.record_no_answer(A, "not_leader", leader="http://thief")
    assert some.present() == [B]


@pytest.mark.parametrize(("endpoints", "path"), [([A], "/healthz"), ([A, B], "/readyz")])
def test_probe_asks_for_a_leader_where_there_may_be_another(
    endpoints: list[str], path: str
) -> None:
    assert Coordinators(endpoints).probe_path == path


def test_outage_of_the_only_one_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    only = Coordinators([A])
    only.record_probe_answered(A)
    only.record_no_answer(A, "ReadTimeout")
    only.record_no_answer(A, "ReadTimeout")
    only.record_probe_answered(A)
    only.record_probe_answered(A)
    assert log_of(caplog) == [
        (
            "WARNING",
            "the coordinator at http://a does not answer (ReadTimeout): "
            "calls pass through until it does",
        ),
        ("INFO", "the coordinator at http://a answers again: calls are scheduled"),
    ]


def test_what_follows_is_said_where_there_are_several(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    some = Coordinators([A, B])
    some.record_no_answer(A, "not_leader", is_planned=True)
    some.record_no_answer(B, "not_leader", is_planned=True)
    assert log_of(caplog) == [
        (
            "INFO",
            "the coordinator at http://a does not answer (not_leader): "
            "calls are scheduled by http://b",
        ),
        (
            "WARNING",
            "the coordinator at http://b does not answer (not_leader) "
            "and no other does: calls pass through until one does",
        ),
    ]


def test_pauses_of_one_are_not_those_of_another() -> None:
    some = Coordinators([A, B])
    assert [some.next_pause_s(A), some.next_pause_s(A)] == [0.5, 1.0]
    assert some.next_pause_s(B) == 0.5
    some.record_answer(A)
    assert some.next_pause_s(A) == 0.5
