from small_problems import SMALL_BLOCKS_LARGE, problem

from tao_coordinator.scheduling.rivals.grid_decision import decide


def test_value_decides_where_the_states_suffice_and_size_where_they_do_not() -> None:
    found = decide(SMALL_BLOCKS_LARGE, 1, 1_000)
    assert found.backend_of.tolist() == [-1, 0]
    # Levels of both backends; budgets count for no more than what all sessions weigh.
    assert (found.used_fallback, found.num_states) == (False, (10 + 1) * (2 + 1))
    small_is_worth_more = problem([3, 8], [[9, 0], [1, 0]], [10, 2])
    assert decide(small_is_worth_more, 1, 1_000).backend_of.tolist() == [0, -1]
    by_size = decide(small_is_worth_more, 1, 32)
    assert by_size.backend_of.tolist() == [-1, 0]
    assert (by_size.used_fallback, by_size.num_states) == (True, 0)


def test_weights_are_rounded_up_to_the_grid_and_budgets_down() -> None:
    two = problem([3, 3], [[1], [1]], [6])
    assert sorted(decide(two, 1, 1_000).backend_of.tolist()) == [0, 0]
    assert sorted(decide(two, 2, 1_000).backend_of.tolist()) == [-1, 0]
