from statistics import mean

from tao_coordinator.simulation.synthetic import draw_sessions
from tao_coordinator.simulation.workload_changes import (
    with_children,
    with_delayed_tools,
    with_long_tools,
    without_reuse,
)

SESSIONS = draw_sessions("swe", 150, 2)


def test_a_tenth_of_the_calls_becomes_long_and_the_rest_stays() -> None:
    changed = with_long_tools(SESSIONS, 0.1, seed=1)
    pairs = [
        (before, after)
        for one, other in zip(SESSIONS, changed, strict=True)
        for before, after in zip(one.turns, other.turns, strict=True)
    ]
    long = [after for before, after in pairs if before != after]
    assert abs(len(long) / len(pairs) - 0.1) < 0.02
    assert all(30.0 <= turn.tool_phase_s <= 300.0 for turn in long)
    assert all(before.input_tokens == after.input_tokens for before, after in pairs)
    hidden = mean(turn.tools[0].key == "python -m pytest" for turn in long)
    assert 0.2 < hidden < 0.4


def test_each_session_gets_one_delay_on_all_its_calls() -> None:
    for one, other in zip(SESSIONS, with_delayed_tools(SESSIONS, (2.0, 10.0), 1), strict=True):
        added = {
            round(after.tool_phase_s - before.tool_phase_s, 6)
            for before, after in zip(one.turns, other.turns, strict=True)
        }
        assert len(added) == 1
        assert 2.0 <= added.pop() <= 10.0


def test_without_reuse_only_the_shared_prefix_stays() -> None:
    for session in without_reuse(SESSIONS):
        assert all(turn.kept_tokens <= session.shared_tokens for turn in session.turns)


def test_every_fourth_session_is_the_parent_of_the_three_behind_it() -> None:
    changed = with_children(SESSIONS[:6], 3)
    ids = [session.session_id for session in SESSIONS[:6]]
    parents = [session.parent_session_id for session in changed]
    assert parents == [None, ids[0], ids[0], ids[0], None, ids[4]]
    assert [session.turns for session in changed] == [session.turns for session in SESSIONS[:6]]
    assert len({session.family for session in changed[:4]}) == 1
    assert changed[0].family != changed[4].family
    first = [session.turns[0].input_tokens for session in changed]
    shared = [session.shared_tokens for session in changed]
    assert shared[:4] == [first[0]] + [min(first[0], tokens) for tokens in first[1:4]]
