from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.study.quiet import without_quiet

TIMES = st.lists(st.integers(0, 10_000), max_size=30)


def test_longer_stretches_are_cut_to_the_limit() -> None:
    assert without_quiet([500.0, 100.0, 110.0, 510.0], 10.0) == ((0.0, 10.0, 20.0, 30.0), 1)
    assert without_quiet([], 10.0) == ((), 0)


@given(TIMES, st.integers(1, 200))
def test_every_stretch_is_the_shorter_of_itself_and_the_limit(times: list[int], limit: int) -> None:
    found, cut = without_quiet(times, limit)
    known = sorted(times)
    before = [later - earlier for earlier, later in pairwise(known)]
    after = [later - earlier for earlier, later in pairwise(found)]
    assert after == pytest.approx([min(stretch, limit) for stretch in before])
    assert cut == sum(stretch > limit for stretch in before)
    assert not found or found[0] == 0.0
