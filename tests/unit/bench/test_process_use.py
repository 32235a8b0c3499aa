"""What the benchmarks say of processes, against the system's own words."""

import os

from tao_coordinator.bench import process_use


def test_cpu_time_is_the_process_s_own() -> None:
    used_s = process_use.cpu_s(os.getpid())
    assert used_s is not None
    times = os.times()
    assert abs(used_s - times.user - times.system) < 1.0
    assert process_use.cpu_s(2**22 + 1) is None


def test_memory_is_at_least_what_the_process_holds() -> None:
    held = b"\1" * 200_000_000
    resident_mb = process_use.resident_mb()
    assert resident_mb is not None
    assert len(held) / 1024**2 <= resident_mb < 1_000_000, "bytes taken for kilobytes"
