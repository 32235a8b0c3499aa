"""What the SDK costs an agent on the openai package, on its own thread: for `tao bench sdk`.

    python -m tao_integrations.sdk_cost BASE_URL COORDINATOR_URL [--calls N] [--events N]

Prints one JSON object. Every figure is a median, and stands beside that of the bare client in the
same run: the two take turns, so that whatever else the machine does falls on both.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from operator import sub
from statistics import median

from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

import tao_client as tao

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say hello"}]
WARM_UP_CALLS = 10
EVENTS_AT_A_TIME = 200
"""Fewer than the queue holds, so that what is measured is not the dropping."""
CALL_PAUSE_S = 0.005
"""Before each call, so that what goes on behind the last one (its lease goes back) is over."""
TOOL_PAUSE_S = 0.02
"""A real tool takes a while, in which caches grow cold."""
IMPORTS = 3


def measure(base_url: str, coordinator_url: str, num_calls: int, num_events: int) -> object:
    """All figures.

    Args:
        base_url: An OpenAI API, with `/v1`; the backend that the coordinator knows.
        coordinator_url: A coordinator with room.
        num_calls: Calls of each client, >= 1.
        num_events: Events of each kind, >= 2.
    """
    imports = {
        name: median(import_ms(name) for _ in range(IMPORTS)) for name in ("tao_client", "openai")
    }
    tao.connect(coordinator_url)
    with tao.session("sdk-cost"):
        model = OpenAI(base_url=base_url, api_key="none").models.list().data[0].id
        calls = {
            "sync": compare(*sync_calls(base_url, model), num_calls),
            "async": asyncio.run(compare_async(base_url, model, num_calls)),
        }
        events = {"hot": hot_event_us(num_events), "cold": cold_event_us(num_events)}
    tao.disconnect()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        tao.connect(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with tao.session("sdk-cost"):
            calls["no coordinator"] = compare(*sync_calls(base_url, model), num_calls)
    return {"import_ms": imports, "event_us": events, "call_ms": calls}


def import_ms(name: str) -> float:
    """Milliseconds to import a package in a fresh interpreter."""
    code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return float(done.stdout) * 1e3


def sync_calls(base_url: str, model: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """One call of the bare client, and one of the wrapped client."""
    bare = OpenAI(base_url=base_url, api_key="none")
    wrapped = tao.wrap(OpenAI(base_url=base_url, api_key="none"))

    def call(client: OpenAI) -> object:
        return client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1)

    return lambda: call(bare), lambda: call(wrapped)


def compare(
    bare: Callable[[], object], wrapped: Callable[[], object], num_calls: int
) -> dict[str, float]:
    """The two, which take turns."""
    spent = {bare: Spent(), wrapped: Spent()}
    for index in range(num_calls + WARM_UP_CALLS):
        for call, on in spent.items():
            time.sleep(CALL_PAUSE_S)
            on.start()
            call()
            on.stop(counts=index >= WARM_UP_CALLS)
    return compared(spent[bare], spent[wrapped])


async def compare_async(base_url: str, model: str, num_calls: int) -> dict[str, float]:
    """The same for the asynchronous clients."""
    async with (
        AsyncOpenAI(base_url=base_url, api_key="none") as bare,
        tao.wrap(AsyncOpenAI(base_url=base_url, api_key="none")) as wrapped,
    ):
        spent = {bare: Spent(), wrapped: Spent()}
        for index in range(num_calls + WARM_UP_CALLS):
            for client, on in spent.items():
                await asyncio.sleep(CALL_PAUSE_S)
                on.start()
                await client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1)
                on.stop(counts=index >= WARM_UP_CALLS)
    return compared(spent[bare], spent[wrapped])


class Spent:
    """Times of one kind of call, seconds: on the clock, and of this thread's own work."""

    def __init__(self) -> None:
        self.clock_s: list[float] = []
        self.cpu_s: list[float] = []
        self._started = (0.0, 0.0)

    def start(self) -> None:
        """A call begins."""
        self._started = (time.perf_counter(), time.thread_time())

    def stop(self, *, counts: bool) -> None:
        """It has ended."""
        if counts:
            self.clock_s.append(time.perf_counter() - self._started[0])
            self.cpu_s.append(time.thread_time() - self._started[1])


def compared(bare: Spent, wrapped: Spent) -> dict[str, float]:
    """Medians in milliseconds; what is added is the median over the pairs."""
    return {
        "bare": median(bare.clock_s) * 1e3,
        "wrapped": median(wrapped.clock_s) * 1e3,
        "added": median(map(sub, wrapped.clock_s, bare.clock_s)) * 1e3,
        "added_cpu": median(map(sub, wrapped.cpu_s, bare.cpu_s)) * 1e3,
        "ratio": median(wrapped.clock_s) / median(bare.clock_s),
    }


def hot_event_us(num_events: int) -> float:
    """Microseconds per event of tool calls one right after the other (two events each)."""
    session = tao.current_session()
    assert session is not None
    times_s: list[float] = []
    while len(times_s) * EVENTS_AT_A_TIME < num_events:
        started_s = time.perf_counter()
        for _ in range(EVENTS_AT_A_TIME // 2):
            with session.tool_call("bash"):
                pass
        times_s.append((time.perf_counter() - started_s) / EVENTS_AT_A_TIME)
        time.sleep(EVENTS_AT_A_TIME / 5_000)  # the other thread sends them meanwhile
    return median(times_s) * 1e6


def cold_event_us(num_events: int) -> float:
    """Microseconds per event of tool calls that take a while."""
    session = tao.current_session()
    assert session is not None
    times_s: list[float] = []
    for _ in range(min(num_events, 400) // 2):
        call = session.tool_call("bash")
        started_s = time.perf_counter()
        call.begin()
        times_s.append(time.perf_counter() - started_s)
        time.sleep(TOOL_PAUSE_S)
        started_s = time.perf_counter()
        call.finish()
        times_s.append(time.perf_counter() - started_s)
    return median(times_s) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the SDK costs an agent.")
    parser.add_argument("base_url")
    parser.add_argument("coordinator_url")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--events", type=int, default=2000)
    given = parser.parse_args()
    for name in list(os.environ):
        if name.startswith("TAO_"):
            del os.environ[name]  # the user's own settings are not what is measured
    figures = measure(given.base_url, given.coordinator_url, given.calls, given.events)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
