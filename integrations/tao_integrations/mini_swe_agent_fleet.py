"""A fleet of real mini-SWE-agent sessions, for demonstrations and load tests.

    python -m tao_integrations.mini_swe_agent_fleet --base-url http://127.0.0.1:8000/v1 \
        --model sim-model --tasks tasks.json --workers 24 --tao-endpoint http://127.0.0.1:8700

`tasks.json` is a list of `{"session_id", "task"}`. Each session is mini-SWE-agent's own agent,
model and local environment in a temporary folder of its own, which is removed at its end. One line
of JSON is written per finished turn and per finished session, times in seconds since the epoch:

    {"kind": "turn", "session_id", "asked_at", "answered_at", "input_tokens", "cached_tokens",
     "output_tokens", "hold_s", "backend"}        and "error" where the turn has failed
    {"kind": "session", "session_id", "started_at", "ended_at", "turns", "exit_status"}

Exit status 0: every session has its record (whether it succeeded is in there). 2: the tasks cannot
be used. 128 + N: ended by signal N; running commands are killed and all folders removed first.

The commands run on this machine, as this user, without any isolation: only for models whose
replies you script yourself, or inside of a container.
"""

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from tao_integrations._fleet_session import FleetSettings

UNWIND_S = 1.0
"""Given to sessions to end by themselves after a signal."""

Task = tuple[str, str]
"""Session id and text."""


class TaskFileError(ValueError):
    """The task file cannot be used; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fleet; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        tasks = read_tasks(Path(options.tasks))
    except TaskFileError as error:
        print(f"mini_swe_agent_fleet: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 2
    fleet = Fleet()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, fleet.stop)
    try:
        with _output(options.output) as output:
            return fleet.run(options, tasks, output)
    finally:
        fleet.remove_folder()


def read_tasks(path: Path) -> list[Task]:
    """Read a task file.

    Raises:
        TaskFileError: it cannot be read, is no such list, or names a session twice.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskFileError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise TaskFileError(f"{path} is no JSON: {error}") from error
    tasks: list[Task] = []
    for number, entry in enumerate(cast("list[object]", document if _is_list(document) else [0])):
        fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        session_id, task = fields.get("session_id"), fields.get("task")
        if not (isinstance(session_id, str) and session_id and isinstance(task, str) and task):
            raise TaskFileError(f'{path}: entry {number} is no {{"session_id", "task"}}')
        tasks.append((session_id, task))
    if len({session_id for session_id, _ in tasks}) < len(tasks):
        raise TaskFileError(f"{path} names a session twice")
    return tasks


class Fleet:
    """The sessions of one run, and their end."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._signal = 0
        self._has_begun = False
        self._lock = threading.Lock()

    def stop(self, number: int, _frame: FrameType | None = None) -> None:
        """End the run early; a signal handler."""
        self._signal = number
        self._stopping.set()
        self._idle.set()
        if not self._has_begun:
            self._end_by_signal([])  # in the middle of slow imports: nothing else to wait for

    def remove_folder(self) -> None:
        """Remove all that the sessions have left on disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, options: argparse.Namespace, tasks: Sequence[Task], output: TextIO) -> int:
        """Run all tasks; returns the exit status, or ends the process after a signal."""
        self._folder = Path(tempfile.mkdtemp(prefix="tao-fleet-"))
        prepare_environment(self._folder, options.attempts)
        from tao_integrations._fleet_session import FleetSettings, warm_up

        settings = FleetSettings(
            model=options.model,
            base_url=options.base_url,
            api_key=os.environ.get("OPENAI_API_KEY") or "none",
            call_timeout_s=options.call_timeout_s,
            command_timeout_s=options.command_timeout_s,
            turn_limit=options.turn_limit,
            folder=self._folder,
        )
        if options.tao_endpoint:
            import tao_client as tao
            from tao_integrations import mini_swe_agent

            tao.connect(options.tao_endpoint)
            mini_swe_agent.instrument()
        warm_up(settings)
        self._has_begun = True
        threads = self._start(tasks, min(options.workers, len(tasks)), settings, output)
        if threads:
            self._idle.wait()
        if self._stopping.is_set():
            self._end_by_signal(threads)
        return 0

    def _start(
        self, tasks: Sequence[Task], num_workers: int, settings: "FleetSettings", output: TextIO
    ) -> list[threading.Thread]:
        from tao_integrations._fleet_session import run_session

        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        write = self._writer(output)
        num_working = num_workers

        def work() -> None:
            nonlocal num_working
            try:
                with contextlib.suppress(queue.Empty):
                    while not self._stopping.is_set():
                        run_session(*waiting.get_nowait(), settings, write, self._stopping)
            finally:
                with self._lock:
                    num_working -= 1
                    if num_working == 0:
                        self._idle.set()

        # Daemons: after a signal nothing waits for a model call that is still out.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(num_workers)]
        for thread in threads:
            thread.start()
        return threads

    def _writer(self, output: TextIO) -> Callable[[dict[str, object]], None]:
        def write(record: dict[str, object]) -> None:
            line = json.dumps(record, separators=(",", ":"))
            with self._lock:
                try:
                    output.write(line + "\n")
                    output.flush()
                except (OSError, ValueError):  # nobody reads any more
                    self.stop(signal.SIGTERM if sys.platform == "win32" else signal.SIGPIPE)

        return write

    def _end_by_signal(self, threads: Sequence[threading.Thread]) -> None:
        deadline_s = time.monotonic() + UNWIND_S
        while time.monotonic() < deadline_s and any(thread.is_alive() for thread in threads):
            kill_commands()
            time.sleep(0.05)
        kill_commands()
        self.remove_folder()
        if "tao_client" in sys.modules:
            import tao_client as tao

            tao.disconnect()
        # Not `sys.exit`: a model call that is still out would be waited for.
        os._exit(128 + self._signal)


def prepare_environment(folder: Path, attempts: int) -> None:
    """Settings that minisweagent and litellm read when they are imported.

    No banner, no settings of this user, no search for prices on the network, no retry after 4 to 60
    seconds unless asked for.
    """
    os.environ.update(
        MSWEA_SILENT_STARTUP="1",
        MSWEA_GLOBAL_CONFIG_DIR=str(folder / "config"),
        MSWEA_COST_TRACKING="ignore_errors",
        MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT=str(attempts),
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )


def kill_commands() -> None:
    """Kill the commands that run; mini-SWE-agent gives each a process group of its own."""
    if sys.platform == "win32":
        return  # no process groups: a command that runs is left behind
    for child in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(child) == child:
                os.killpg(child, signal.SIGKILL)


def _children() -> list[int]:
    lists = list(Path(f"/proc/{os.getpid()}/task").glob("*/children"))
    if lists:
        texts: list[str] = []
        for one in lists:
            with contextlib.suppress(OSError):  # that thread has ended meanwhile
                texts.append(one.read_text())
        return [int(word) for text in texts for word in text.split()]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        found = subprocess.run(
            ["pgrep", "-P", str(os.getpid())],
            capture_output=True,
            text=True,
            timeout=1,
            check=False,
        )
        return [int(word) for word in found.stdout.split()]
    return []


@contextlib.contextmanager
def _output(path: str) -> Generator[TextIO]:
    """Where the records go; stdout is theirs alone, so that every line of it is one."""
    if path != "-":
        with open(path, "w", encoding="utf-8") as file:
            yield file
        return
    records, sys.stdout = sys.stdout, sys.stderr
    try:
        yield records
    finally:
        sys.stdout = records


def _is_list(document: object) -> bool:
    return isinstance(document, list)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tao_integrations.mini_swe_agent_fleet",
        description="Run a fleet of real mini-SWE-agent sessions and date every turn.",
    )
    add = parser.add_argument
    add("--base-url", required=True, help="OpenAI API root, with /v1, for calls not placed")
    add("--model", required=True, help="model name as the backends serve it")
    add("--tasks", required=True, metavar="FILE", help='JSON list of {"session_id", "task"}')
    add("--workers", type=int, default=4, help="sessions at once (default %(default)s)")
    add("--tao-endpoint", metavar="URL", help="coordinator that places the calls")
    add("--output", default="-", metavar="FILE", help="for the records (default: stdout)")
    add(
        "--attempts",
        type=int,
        default=1,
        help="of mini-SWE-agent for one turn, 4 to 60 s apart (default %(default)s); litellm "
        "itself tries a failed call twice more, at once",
    )
    add("--call-timeout-s", type=float, default=600.0, help="limit of one model call")
    add("--command-timeout-s", type=int, default=60, help="limit of one command")
    add("--turn-limit", type=int, default=0, help="model calls per session (default: no limit)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
