"""`agent`: each call of a function is a session of its own."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from tao_client._session import Session
from tao_client.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")


class AgentDecorator(Protocol):
    """What `agent(...)` returns: it keeps the signature of what it decorates."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate one function."""
        ...


@overload
def agent(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def agent(
    *,
    session_id_from: str | None = None,
    name: str | None = None,
    model: str = "",
    priority: int = 0,
    tenant: str = "",
) -> AgentDecorator: ...


def agent(
    function: Callable[P, R] | None = None,
    /,
    *,
    session_id_from: str | None = None,
    name: str | None = None,
    model: str = "",
    priority: int = 0,
    tenant: str = "",
) -> Callable[P, R] | AgentDecorator:
    """Run each call of a function, a whole agent loop, in a session: `@tao.agent`.

        @tao.agent(session_id_from="instance")
        def solve(instance: str, client: OpenAI) -> str: ...

    Works on plain and on `async` functions and keeps their signature. Called inside another
    session, such as that of another agent, it becomes a child of that. What the function raises
    ends the session as an error and goes on to the caller.

    Args:
        function: The function, when used without parentheses.
        session_id_from: Name of the parameter whose value names the session. Default, and where
            the value is None or empty: a fresh id for each call.
        name: Name of the agent. Default: the function's.
        model: Model of its turns, unless a turn says otherwise.
        priority: Higher goes first inside a tenant.
        tenant: Whose share of the fleet it counts against.

    Raises:
        ConfigurationError: the function has no such parameter, or it is a generator: what runs
            between its items is the caller's. Use `with tao.session(...)` inside it instead.
    """

    def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
        agent_name = name or getattr(wrapped, "__name__", type(wrapped).__name__)
        read_id = _id_reader(wrapped, session_id_from)

        def open_session(args: tuple[object, ...], kwargs: dict[str, object]) -> Session:
            session_id = read_id(args, kwargs)
            return Session(
                session_id, agent=agent_name, model=model, priority=priority, tenant=tenant
            )

        return _decorated(wrapped, open_session)

    return cast("AgentDecorator", decorate) if function is None else decorate(function)


def _id_reader(
    function: Callable[..., object], parameter: str | None
) -> Callable[[tuple[object, ...], dict[str, object]], str | None]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{function.__name__} is a generator, which runs piece by piece in its caller: open a "
            "session inside it (`with tao.session(...)`) instead of decorating it"
        )
    if parameter is None:
        return lambda args, kwargs: None
    signature = inspect.signature(function)
    if parameter not in signature.parameters:
        raise ConfigurationError(
            f"{function.__name__} has no parameter {parameter!r} to name its sessions: it has "
            f"{', '.join(signature.parameters) or 'none'}"
        )

    def read_id(args: tuple[object, ...], kwargs: dict[str, object]) -> str | None:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the call itself says so, in its own words
        given.apply_defaults()
        value = given.arguments[parameter]
        return None if value is None else str(value)

    return read_id


def _decorated(
    function: Callable[P, R],
    open_session: Callable[[tuple[object, ...], dict[str, object]], Session],
) -> Callable[P, R]:
    if inspect.iscoroutinefunction(function):
        awaited = cast("Callable[P, Coroutine[Any, Any, object]]", function)

        @functools.wraps(function)
        async def run_async(*args: P.args, **kwargs: P.kwargs) -> object:
            async with open_session(args, kwargs):
                return await awaited(*args, **kwargs)

        return cast("Callable[P, R]", run_async)

    @functools.wraps(function)
    def run_sync(*args: P.args, **kwargs: P.kwargs) -> R:
        with open_session(args, kwargs):
            return function(*args, **kwargs)

    return run_sync
