"""The work of the demo: sessions whose tool calls are real shell commands.

Each session reads text, runs a short check, now and then a test suite or a build. Only
the *durations* of tests and builds are play-acted (`sleep`), divided by the time scale like
everything else; the output that a session reads grows its prompt as a real one would. Seeded: every
policy gets the same sessions. Durations follow the shape of real coding agents (most calls end
within a second, a few hold most of the time); they are drawn here, not taken from any trace.
"""

import random
from dataclasses import dataclass

Json = dict[str, object]

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command by which mini-SWE-agent knows that a task is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Sessions to run: what the agents are told, and what the modelled model will answer."""

    tasks: list[Json]
    """`{"session_id", "task"}` per session, for the fleet."""
    script: Json
    """Replies per session and turn, for `tao sim-backend --script`."""
    num_turns: int
    """Model calls in all."""


def build(*, num_sessions: int, num_turns: int, time_scale: float, seed: int) -> Workload:
    """Draw the sessions.

    Args:
        num_sessions: sessions, all alive at once.
        num_turns: mean model calls per session, the submitting one included; at least 3.
        time_scale: engine seconds per real second; divides the durations of tools.
        seed: same seed, same sessions.
    """
    draw = random.Random(seed)
    tasks: list[Json] = []
    scripts: dict[str, Json] = {}
    total = 0
    for number in range(num_sessions):
        name = f"demo-{seed}-{number:03d}"
        turns = max(3, num_turns + draw.randint(-2, 2))
        total += turns
        tasks.append({"session_id": name, "task": _task(name, draw)})
        scripts[name] = {"turns": _turns(turns, time_scale, draw)}
    return Workload(tasks=tasks, script={"scripts": scripts}, num_turns=total)


def _task(name: str, draw: random.Random) -> str:
    lines = [f"[[script {name}]] Fix the failing import in the package below.", "", "Log:"]
    lines += [f"{draw.getrandbits(96):024x} module_{i:03d} imported" for i in range(520)]
    return "\n".join(lines)


def _turns(num_turns: int, time_scale: float, draw: random.Random) -> list[Json]:
    turns = [_turn("I set the folder up.", _setup_command(), 180)]
    for index in range(1, num_turns - 1):
        command = _command(index, time_scale, draw)
        output_tokens = int(min(900, max(40, draw.lognormvariate(4.97, 0.8))))
        turns.append(_turn("I look further.", command, output_tokens))
    turns.append(_turn("The task is done.", SUBMIT, 60))
    return turns


def _turn(text: str, command: str, output_tokens: int) -> Json:
    call: Json = {"name": "bash", "arguments": {"command": command}}
    return {"text": text, "tool_calls": [call], "output_tokens": output_tokens}


def _setup_command() -> str:
    """Two little programs that later calls run; the coordinator learns from their names."""
    return (
        'printf \'#!/bin/sh\\nsleep "$1"; echo "$2 passed"\\n\' > run-tests; '
        'printf \'#!/bin/sh\\nsleep "$1"; echo "built $2 objects"\\n\' > build; '
        "chmod +x run-tests build; ls"
    )


def _command(index: int, time_scale: float, draw: random.Random) -> str:
    chance = draw.random()
    if chance < 0.12:
        seconds = draw.uniform(30.0, 90.0) / time_scale
        return f"./build {seconds:.3f} {index}; {_read(draw, 90)}"
    if chance < 0.40:
        seconds = draw.uniform(2.0, 10.0) / time_scale
        return f"./run-tests {seconds:.3f} {index}; {_read(draw, 105)}"
    return _read(draw, 130)


def _read(draw: random.Random, mean_lines: int) -> str:
    """Print lines that no other session prints: about 52 characters each."""
    lines = max(5, int(draw.gauss(mean_lines, mean_lines / 4)))
    return f"seq -f 'src/part_{draw.getrandbits(64):016x}.py:%05g: value unchanged' 1 {lines}"
