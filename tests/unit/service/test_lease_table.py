"""Renewals: of live leases only, within the two limits, in bounded memory."""

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.service.lease_table import LeaseTable

PARAMETERS = Parameters(start_within_s=5.0, lease_silence_s=60.0)


def test_lease_must_start_in_time_and_then_stay_audible() -> None:
    table = LeaseTable(PARAMETERS)
    assert table.add("a", 0.0)
    assert table.renew("a", 4.0)
    assert table.renew("a", 63.0)
    assert not table.renew("a", 124.0)
    table.add("b", 0.0)
    assert not table.renew("b", 5.1)


def test_repeated_grant_changes_nothing() -> None:
    table = LeaseTable(PARAMETERS)
    assert [table.add("a", 0.0), table.add("a", 4.0)] == [True, False]
    assert not table.renew("a", 5.1)


def test_unknown_and_released_leases_are_not_renewed() -> None:
    table = LeaseTable(PARAMETERS)
    table.add("a", 0.0)
    table.remove("a")
    table.remove("a")
    assert not table.renew("a", 1.0)
    assert not table.renew("never", 1.0)


def test_expired_leases_are_swept() -> None:
    table = LeaseTable(PARAMETERS)
    for number in range(100_000):
        table.add(str(number), float(number))
    # One new lease a second that nobody starts: six are alive, the rest waits for the next sweep.
    assert len(table) <= 1_024
