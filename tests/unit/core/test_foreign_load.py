"""Load from elsewhere: seen when it lasts, never where only the sampling is late."""

from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.core.foreign_load import SAMPLES, TYPICAL_TOKENS, ForeignLoad


def sample(load: ForeignLoad, running: int | None, waiting: int = 0, **more: object) -> None:
    load.sampled(
        running=running,
        waiting=waiting,
        **{"kv_usage_ratio": None, "capacity_tokens": 1_000_000, **more},  # pyright: ignore
    )


def test_own_calls_are_no_foreign_load() -> None:
    load = ForeignLoad()
    for _ in range(3):
        load.call_began()
    for _ in range(5):
        sample(load, 3)
    assert load.tokens == 0


def test_lasting_excess_is_taken_at_its_smallest() -> None:
    load = ForeignLoad()
    load.call_began()
    for running in (5, 4, 6):
        sample(load, running)
    assert load.num_requests == 3
    assert load.tokens == 3 * TYPICAL_TOKENS


def test_waiting_requests_count_too() -> None:
    load = ForeignLoad()
    for _ in range(SAMPLES):
        sample(load, 1, waiting=2)
    assert load.num_requests == 3


def test_short_excess_is_none() -> None:
    load = ForeignLoad()
    for running in (4, 4, 0, 4, 4):
        sample(load, running)
        assert load.tokens == 0


def test_call_that_ended_between_the_look_and_the_sample_is_still_own() -> None:
    load = ForeignLoad()
    for _ in range(6):
        # The engine was looked at while the call ran; the lease is back when the answer arrives.
        load.call_began()
        load.call_ended()
        sample(load, 1)
    assert load.tokens == 0


def test_end_that_the_engine_notices_one_sample_late_is_still_own() -> None:
    load = ForeignLoad()
    for _ in range(6):
        load.call_began()
        sample(load, 1)
        load.call_ended()
        sample(load, 1)
    assert load.tokens == 0


def test_size_is_what_the_engine_says_its_requests_hold() -> None:
    load = ForeignLoad()
    for _ in range(SAMPLES):
        sample(load, 4, kv_usage_ratio=0.2, capacity_tokens=100_000)
    assert load.tokens == 20_000


def test_a_fifth_of_the_pool_is_always_left() -> None:
    load = ForeignLoad()
    for _ in range(SAMPLES):
        sample(load, 10_000, capacity_tokens=100_000)
    assert load.tokens == 80_000


def test_it_ends_with_the_load_and_with_the_knowledge() -> None:
    for last in (0, None):
        load = ForeignLoad()
        for _ in range(SAMPLES):
            sample(load, 4)
        assert load.tokens > 0
        sample(load, last)
        assert (load.num_requests, load.tokens) == (0, 0)


@given(st.lists(st.sampled_from(["began", "ended", "sample"]), max_size=60))
def test_engine_that_runs_exactly_the_own_calls_is_never_foreign(steps: list[str]) -> None:
    load, own = ForeignLoad(), 0
    for step in steps:
        if step == "began":
            load.call_began()
            own += 1
        elif step == "ended" and own:
            load.call_ended()
            own -= 1
        elif step == "sample":
            sample(load, own)
        assert load.tokens == 0
        assert load.num_own == own
