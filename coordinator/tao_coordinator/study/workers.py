"""Worker processes for runs that may fail, hang, or be killed with their process.

One pipe per worker and one task at a time, so that a task that dies takes nobody with it: it is
told, a new worker takes its place, the others go on. A worker ends with its parent, however that
ends: nothing computes on after a kill -9.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection as Connection
    else:
        from multiprocessing.connection import Connection

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task has no result."""

    reason: str
    """One line."""
    details: str = ""
    """The traceback, where there is one."""


class Ended(NamedTuple, Generic[TaskT, ResultT]):
    """A task that is over."""

    task: TaskT
    outcome: ResultT | Failure


class Running(NamedTuple, Generic[TaskT]):
    """A task under way, told while nothing ends."""

    task: TaskT
    for_s: float


def attempt(run: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failure:
    """The result, or what was raised instead; interruptions go through."""
    try:
        return run(task)
    except Exception as error:  # noqa: BLE001 - whatever a run raises, the others go on
        return Failure(f"{type(error).__name__}: {error}".splitlines()[0], traceback.format_exc())


def run_all(
    run: Callable[[TaskT], ResultT],
    tasks: Iterable[TaskT],
    *,
    workers: int,
    limit_s: float,
    told_every_s: float = 60.0,
) -> Generator[Ended[TaskT, ResultT] | list[Running[TaskT]]]:
    """Run every task, each in some worker; tell of each as it ends.

    Whoever stops asking (an exception, `close`) ends all workers.

    Args:
        run: a module's own function; it and the tasks are pickled.
        tasks: begun in this order.
        workers: processes at most.
        limit_s: a task that takes longer is ended with its worker.
        told_every_s: what runs is told when nothing has ended for so long.
    """
    waiting = deque(tasks)
    context = get_context("spawn")
    free: list[_Worker[TaskT, ResultT]] = []
    busy: list[_Worker[TaskT, ResultT]] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = free.pop() if free else _Worker[TaskT, ResultT](context, run)
                try:
                    worker.begin(waiting[0])
                except OSError:
                    worker.end()  # it died while it had nothing to do
                    continue
                waiting.popleft()
                busy.append(worker)
            now_s = time.monotonic()
            soonest_s = min(worker.began_s for worker in busy) + limit_s - now_s
            ready = connection.wait(
                [worker.pipe for worker in busy], max(0.0, min(told_every_s, soonest_s))
            )
            now_s = time.monotonic()
            if not ready and soonest_s > told_every_s:
                yield [Running(worker.task, now_s - worker.began_s) for worker in busy]
            for worker in list(busy):
                if worker.pipe in ready:
                    outcome = worker.take()
                elif now_s - worker.began_s >= limit_s:
                    worker.end()
                    outcome = Failure(f"took longer than {limit_s:g} s and was ended")
                else:
                    continue
                busy.remove(worker)
                if worker.is_alive:
                    free.append(worker)
                yield Ended(worker.task, outcome)
    finally:
        for worker in (*busy, *free):
            worker.end()


@dataclass(slots=True)
class _Worker(Generic[TaskT, ResultT]):
    """One process, seen from its parent."""

    context: SpawnContext
    run: Callable[[TaskT], ResultT]
    pipe: "Connection[TaskT, ResultT | Failure]" = field(init=False)
    process: SpawnProcess = field(init=False)
    is_alive: bool = True
    task: TaskT = field(init=False)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_work, args=(theirs, self.run), daemon=True)
        with _interrupts_held_back():
            self.process.start()
        theirs.close()

    def begin(self, task: TaskT) -> None:
        self.task, self.began_s = task, time.monotonic()
        self.pipe.send(task)

    def take(self) -> ResultT | Failure:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.end()
            code = self.process.exitcode
            how = signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
            return Failure(f"its process ended ({how})")

    def end(self) -> None:
        """Kill the process; a run has nothing to tidy up."""
        self.is_alive = False
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _interrupts_held_back() -> Generator[None]:
    """A process that is started in here never hears of Ctrl-C, not even while it imports."""
    if sys.platform == "win32":
        yield
        return
    # Begun along with the first process otherwise, and it leaves the signal unblocked.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: "Connection[ResultT | Failure, TaskT]", run: Callable[[TaskT], ResultT]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, also where it cannot mask
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(run, task))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
