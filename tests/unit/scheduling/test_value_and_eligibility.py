"""Cache credit and weight: whose prefix counts, where, and how often (DESIGN 7, Eq. 2 and 4)."""

from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendAdded, BackendDrained
from tao_coordinator.core.model import SessionKey

POOL = 400_000


def credit(
    d: EngineDriver, session_id: str, backend_id: str, agent: str = "", model: str = ""
) -> int:
    state = d.engine.state
    session = state.sessions[SessionKey(session_id, agent, model)]
    return state.credit_tokens(session, state.backends[backend_id])


def call(d: EngineDriver, session_id: str, tokens: int = 10_000, **fields: object) -> str:
    """A whole turn; where it ran."""
    request_id = d.ask(session_id, tokens, **fields)  # pyright: ignore[reportArgumentType]
    d.done(request_id, input_tokens=tokens, output_tokens=100)
    return d.backend_of(request_id)


def test_credit_is_what_the_last_reply_left_prompt_and_output() -> None:
    d = EngineDriver(POOL)
    call(d, "s", 10_000)
    assert credit(d, "s", "b0") == 10_100


def test_older_home_has_no_credit_although_it_holds_a_prefix_still() -> None:
    d = EngineDriver(POOL, POOL)
    old = call(d, "s", 10_000)
    d.step(BackendDrained(backend_id=old))
    new = call(d, "s", 12_000)
    d.step(BackendAdded(backend_id=old, base_url=f"http://{old}"))
    assert {old, new} == {"b0", "b1"}
    assert d.engine.state.backends[old].cache.idle_tokens == 10_100
    assert (credit(d, "s", old), credit(d, "s", new)) == (0, 12_100)


def test_agents_of_one_session_have_a_prefix_each() -> None:
    d = EngineDriver(POOL)
    call(d, "s", 30_000, agent="main")
    call(d, "s", 4_000, agent="reviewer")
    assert credit(d, "s", "b0", agent="main") == 30_100
    assert credit(d, "s", "b0", agent="reviewer") == 4_100


def test_models_of_one_agent_have_a_prefix_each() -> None:
    d = EngineDriver(POOL, models=("large", "small"))
    call(d, "s", 30_000, model="large")
    call(d, "s", 4_000, model="small")
    assert credit(d, "s", "b0", model="large") == 30_100
    assert credit(d, "s", "b0", model="small") == 4_100


def test_first_call_of_a_child_has_the_credit_of_its_parents_newest_prefix() -> None:
    d = EngineDriver(POOL, POOL)
    old = call(d, "parent", 20_000)
    d.step(BackendDrained(backend_id=old))
    new = call(d, "parent", 22_000)
    d.step(BackendAdded(backend_id=old, base_url=f"http://{old}"))
    child = d.ask("child", 5_000, parent_session_id="parent", root_session_id="parent")
    assert d.backend_of(child) == new
    assert (credit(d, "child", old), credit(d, "child", new)) == (0, 22_100)


def test_later_calls_of_a_child_have_credit_of_their_own_only() -> None:
    d = EngineDriver(POOL)
    call(d, "parent", 20_000)
    call(d, "child", 5_000, parent_session_id="parent")
    assert credit(d, "child", "b0") == 5_100


def test_child_on_another_model_shares_nothing_with_its_parent() -> None:
    """Keys and values of one model mean nothing to another."""
    d = EngineDriver(POOL, models=("large", "small"))
    call(d, "parent", 20_000, model="large")
    child = d.ask("child", 5_000, parent_session_id="parent", model="small")
    assert child in d.grants
    assert credit(d, "child", "b0", model="small") == 0


def test_shared_prefix_is_in_no_sessions_weight_and_once_in_the_budget() -> None:
    d = EngineDriver(200_000)
    for n, cached in enumerate([0, 6_000, 6_000]):
        d.done(d.ask(f"first {n}", 10_000), input_tokens=10_000, cached_tokens=cached)
        d.end(f"first {n}")
    state, backend = d.engine.state, d.engine.state.backends["b0"]
    assert state.budget_tokens(backend) == int(0.95 * (200_000 - 6_000))
    requests = [d.ask(f"s{n}", 10_000) for n in range(3)]
    needs = [state.leases[d.grants[r].lease_id].need_tokens for r in requests]
    assert needs == [4_000 + int(state.typical.output_tokens)] * 3
    assert backend.cache.in_flight_tokens == sum(needs)


def test_session_may_run_only_where_its_model_is_served_and_the_backend_takes_calls() -> None:
    d = EngineDriver(POOL, POOL, models=("m",))
    d.step(BackendDrained(backend_id="b0"))
    assert [d.backend_of(d.ask(f"s{n}", model="m")) for n in range(3)] == ["b1"] * 3
    assert d.ask("other", model="unknown") in d.rejects
