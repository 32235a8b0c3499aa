"""Child processes that never outlive the command that started them.

Each child leads its own process group, so that its own children (an agent's shell commands) end
with it. `ChildProcesses` is a context manager: whatever ends the block, a result, an error or
Ctrl-C, every group gets SIGTERM, three seconds, then SIGKILL.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tao_coordinator.errors import CoordinatorError

START_S = 60.0
"""Longest wait for a child to say that it is ready; a cold disk makes imports slow."""
STOP_S = 3.0


class ChildFailedError(CoordinatorError):
    """A child process did not start, or ended when it should not have."""


class Child:
    """One child process whose stdout is read line by line by a thread."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        """Start `python -m ...arguments` in its own process group."""
        self.name = name
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=100_000)
        self._errors: deque[str] = deque(maxlen=20)
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment() | environment,
            start_new_session=os.name == "posix",
        )
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for_url(self) -> str:
        """The address in the line by which a server says that it listens."""
        line = self.wait_for_line("listening on")
        return next(word for word in line.split() if word.startswith("http://"))

    def wait_for_line(self, text: str) -> str:
        """The first line of stdout that contains `text`."""
        deadline_s = time.monotonic() + START_S
        while True:
            line = self.next_line(max(0.0, deadline_s - time.monotonic()))
            if line is None:
                raise ChildFailedError(f"{self.name} did not start: {self.last_words()}")
            if text in line:
                return line

    def next_line(self, timeout_s: float) -> str | None:
        """The next line of stdout; `None` at its end or after `timeout_s` without one."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def lines(self, timeout_s: float) -> Iterator[str]:
        """Lines of stdout until the child ends; an error when it outlives `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            line = self.next_line(1.0)
            if time.monotonic() > deadline_s:
                raise ChildFailedError(f"{self.name} is not done after {timeout_s:.0f} s")
            if line is not None:
                yield line
            elif self.process.poll() is not None and self._lines.empty():
                return

    def last_words(self) -> str:
        """The last lines of stderr, for an error message."""
        for reader in self._readers:
            reader.join(timeout=0.5)
        return " | ".join(self._errors) or f"exit status {self.process.poll()}"

    def signal(self, number: int) -> None:
        """Signal the whole process group."""
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                self.process.terminate()

    def close(self) -> None:
        """Reap the child and its pipes."""
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line.rstrip("\n"))


def _environment() -> dict[str, str]:
    """Without the user's own settings: a demo must not write into production's state directory."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TAO_")}


class ChildProcesses:
    """Starts children and ends them all, whatever happens."""

    def __init__(self) -> None:
        """Start with none."""
        self._children: list[Child] = []

    def start(
        self, name: str, arguments: list[str], environment: dict[str, str] | None = None
    ) -> Child:
        """Start `python -m ...arguments`."""
        child = Child(name, arguments, environment or {})
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise when a child has died."""
        for child in self._children:
            if child.process.poll() not in (None, 0):
                raise ChildFailedError(f"{child.name} died: {child.last_words()}")

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every group, gently first."""
        for child in reversed(self._children):
            child.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=max(0.0, deadline_s - time.monotonic()))
        for child in self._children:
            if os.name == "posix":
                child.signal(signal.SIGKILL)
            elif child.process.poll() is None:
                child.process.kill()
            child.close()
