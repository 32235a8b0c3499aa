"""LiteLLM's `completion` and `acompletion` on the scheduler: each call a turn of its session.

    from tao_integrations.litellm import completion  # instead of litellm's

    with tao.session("swe-17"):
        completion("openai/my-model", messages, api_base="http://gpu-1:8000/v1")

For models of an OpenAI API (`openai/`, `hosted_vllm/` and their kin); the calls of any other model,
and those outside a session, go to litellm as they are. A streamed reply gives its lease back when
it has been read to its end, closed or forgotten. litellm's own retries of a call stay with the
backend of that call; where that takes no connection, the call goes to its own `api_base`. Nothing
that fails in here reaches the caller, with one exception that is meant: a call held for its whole
time-out raises `litellm.Timeout`.
"""

# litellm is typed in parts only.
# pyright: reportUnknownMemberType=false

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import litellm

import tao_client as tao
from tao_integrations import _litellm_calls as calls
from tao_integrations._quiet import leave, quiet

__all__ = ["acompletion", "completion"]


def completion(model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
    """`litellm.completion`, placed.

    Args:
        model: Name of the model, as for litellm.
        messages: The conversation.
        kwargs: What else `litellm.completion` takes.
    """
    call = _Call(model, messages, kwargs)
    call.acquire()
    try:
        reply = cast("Any", litellm.completion)(model, messages, **call.arguments())
    except BaseException as error:
        if not call.finish_to_try_unplaced(error):
            raise
        return cast("Any", litellm.completion)(model, messages, **kwargs)
    if call.turn is not None and kwargs.get("stream"):
        return _Stream(reply, call)
    call.report(reply)
    call.finish(None)
    return reply


async def acompletion(model: str, messages: Sequence[Any] = (), **kwargs: Any) -> Any:
    """`litellm.acompletion`, placed.

    Args:
        model: Name of the model, as for litellm.
        messages: The conversation.
        kwargs: What else `litellm.acompletion` takes.
    """
    call = _Call(model, messages, kwargs)
    await call.acquire_async()
    try:
        reply = await cast("Any", litellm.acompletion)(model, messages, **call.arguments())
    except BaseException as error:
        if not call.finish_to_try_unplaced(error):
            raise
        return await cast("Any", litellm.acompletion)(model, messages, **kwargs)
    if call.turn is not None and kwargs.get("stream"):
        return _AsyncStream(reply, call)
    call.report(reply)
    call.finish(None)
    return reply


@dataclass(frozen=True, slots=True)
class _Settings:
    model_name: str
    model_kwargs: dict[str, Any]


class _Call:
    """One call, from asking for its lease to giving it back."""

    def __init__(self, model: str, messages: object, kwargs: dict[str, Any]) -> None:
        self._settings = _Settings(model, kwargs)
        self._kwargs = kwargs
        self._asked_s = time.monotonic()
        self.turn: tao.Turn | None = None
        with quiet("make a turn of a model call"):
            session = tao.current_session()
            if session is not None and calls.provider(self._settings) in calls.OPENAI_PROVIDERS:
                self.turn = calls.new_turn(session, self._settings, messages, kwargs)

    def acquire(self) -> None:
        """Wait for the lease on this thread."""
        asked, self.turn = self.turn, None
        held: tao.HoldTimeoutError | None = None
        with quiet("ask for a lease"):
            try:
                if asked is not None:
                    asked.acquire()
                self.turn = asked
            except tao.HoldTimeoutError as too_long:
                held = too_long
        self._raise_own(held)

    async def acquire_async(self) -> None:
        """Wait for the lease in this task."""
        asked, self.turn = self.turn, None
        held: tao.HoldTimeoutError | None = None
        with quiet("ask for a lease"):
            try:
                if asked is not None:
                    await asked.acquire_async()
                self.turn = asked
            except tao.HoldTimeoutError as too_long:
                held = too_long
        self._raise_own(held)

    def arguments(self) -> dict[str, Any]:
        """What to call litellm with."""
        if self.turn is not None:
            held_s = time.monotonic() - self._asked_s
            with quiet("send a call to its backend"):
                return calls.placed(self.turn, self._settings, self._kwargs, held_s=held_s)
        return self._kwargs

    def report(self, reply: object) -> None:
        """Tell the turn what a reply, or a part of one, says it used."""
        if self.turn is not None:
            with quiet("read the usage of a reply"):
                calls.report_usage(self.turn, reply)

    def finish(self, error: BaseException | None) -> None:
        """Give the lease back; the first time counts."""
        turn, self.turn = self.turn, None
        if turn is not None:
            leave(turn, error)

    def finish_to_try_unplaced(self, error: BaseException) -> bool:
        """Give the lease back; true if its backend has just died, so that its own may be asked."""
        was_placed = self.turn is not None and self.turn.affinity is not None
        self.finish(error)
        return was_placed and calls.took_no_connection(error)

    def _raise_own(self, held: tao.HoldTimeoutError | None) -> None:
        if held is not None:
            raise calls.own_timeout(held, self._settings) from held


class _Streamed:
    """litellm's stream of a reply, with an eye on its end."""

    def __init__(self, inner: Any, call: _Call) -> None:
        self._inner = inner
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        self._call.finish(GeneratorExit())


class _Stream(_Streamed):
    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self._inner)
        except BaseException as error:
            self._call.finish(None if isinstance(error, StopIteration) else error)
            raise
        self._call.report(chunk)
        return chunk


class _AsyncStream(_Streamed):
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._inner)
        except BaseException as error:
            self._call.finish(None if isinstance(error, StopAsyncIteration) else error)
            raise
        self._call.report(chunk)
        return chunk
