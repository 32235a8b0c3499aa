import inspect
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

import tao_client as tao
from tao_client import testing
from tao_client.testing import Event


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    testing.reset()
    with testing.capture_events() as captured:
        yield captured


def ids(events: list[Event], name: str) -> list[object]:
    return [one.attributes["gen_ai.conversation.id"] for one in events if one.name == name]


def inside() -> tao.Session:
    session = tao.current_session()
    assert session is not None
    return session


def test_each_call_is_a_session_of_its_own(events: list[Event]) -> None:
    @tao.agent
    def solve(task: str) -> tuple[str, str]:
        return task, inside().id

    first, second = solve("a"), solve("b")
    assert (first[0], second[0]) == ("a", "b")
    assert first[1] != second[1]
    assert ids(events, "tao.session.start") == [first[1], second[1]]
    assert ids(events, "tao.session.end") == [first[1], second[1]]
    assert {one.attributes["gen_ai.agent.name"] for one in events} == {"solve"}
    assert tao.current_session() is None


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_async_calls_side_by_side_keep_apart(events: list[Event], loop: str) -> None:
    seen: dict[str, set[str]] = {}

    @tao.agent(session_id_from="task", name="solver", model="m", priority=3, tenant="t")
    async def solve(task: str) -> None:
        for _ in range(3):
            session = inside()
            seen.setdefault(task, set()).add(session.id)
            assert (session.model, session.priority, session.tenant) == ("m", 3, "t")
            await anyio.sleep(0.001)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for task in ("a", "b", "c"):
                group.start_soon(solve, task)

    anyio.run(main, backend=loop)
    assert seen == {task: {task} for task in ("a", "b", "c")}
    assert {str(one) for one in ids(events, "tao.session.end")} == {"a", "b", "c"}
    assert {one.attributes["gen_ai.agent.name"] for one in events} == {"solver"}


def test_session_id_is_read_wherever_the_argument_stands(events: list[Event]) -> None:
    class Runner:
        @tao.agent(session_id_from="number")
        def solve(self, task: str, number: int | None = 7) -> str:
            return inside().id

    assert Runner().solve("x", 12) == "12"
    assert Runner().solve(number=3, task="x") == "3"
    assert Runner().solve("x") == "7"
    fresh = Runner().solve("x", None)
    assert fresh not in ("None", "7")
    assert len(events) == 8


def test_nested_agent_is_a_child(events: list[Event]) -> None:
    @tao.agent(session_id_from="name")
    def reviewer(name: str) -> tuple[str | None, str]:
        return inside().parent_id, inside().root_id

    @tao.agent(session_id_from="name")
    def lead(name: str) -> tuple[str | None, str]:
        return reviewer(f"{name}-review")

    assert lead("run") == ("run", "run")
    assert ids(events, "tao.session.start") == ["run", "run-review"]


def test_what_the_agent_raises_ends_its_session_and_goes_on(events: list[Event]) -> None:
    @tao.agent
    def solve() -> None:
        raise LookupError("of the agent")

    with pytest.raises(LookupError, match="of the agent"):
        solve()
    (end,) = [one for one in events if one.name == "tao.session.end"]
    assert end.attributes["tao.session.end.reason"] == "error"
    assert end.attributes["error.type"] == "LookupError"


def test_signature_name_and_kind_are_kept() -> None:
    def plain(task: str, *, limit: int = 3) -> str:
        """What it does."""
        return task * limit

    async def waiting(task: str) -> str:
        return task

    wrapped = tao.agent(plain)
    assert inspect.signature(wrapped) == inspect.signature(plain)
    assert (wrapped.__name__, wrapped.__doc__) == ("plain", "What it does.")
    assert wrapped("a", limit=2) == "aa"
    assert inspect.iscoroutinefunction(tao.agent(waiting))
    assert not inspect.iscoroutinefunction(wrapped)


def test_wrong_arguments_raise_the_functions_own_error() -> None:
    @tao.agent(session_id_from="task")
    def solve(task: str) -> None:
        pass

    with pytest.raises(TypeError, match=r"solve\(\) missing 1 required positional"):
        solve()  # pyright: ignore[reportCallIssue]


def test_unknown_parameter_is_refused_when_decorating() -> None:
    def solve(task: str) -> None:
        pass

    with pytest.raises(tao.ConfigurationError, match=r"solve has no parameter 'id'.*task"):
        tao.agent(session_id_from="id")(solve)


def test_generators_are_refused_with_the_way_out() -> None:
    def produce() -> Iterator[int]:
        yield 1

    async def produce_async() -> AsyncIterator[int]:
        yield 1

    for function in (produce, produce_async):
        with pytest.raises(tao.ConfigurationError, match=r"with tao\.session"):
            tao.agent(function)


def test_agents_in_a_thread_pool_keep_apart(events: list[Event]) -> None:
    @tao.agent(session_id_from="task")
    def solve(task: str) -> str:
        return inside().id

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(solve, "abcd")) == list("abcd")
    assert sorted(str(one) for one in ids(events, "tao.session.end")) == list("abcd")
