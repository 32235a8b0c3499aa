"""Synthetic agent workloads: every distribution stated, nothing measured here is hidden in code.

Numbers named *published* are statistics of public traces: Claude Code on SWE-rebench tasks with a
local model (5,529 turns), mini-SWE-agent on Terminal-Bench (3,224 tool calls) and the Weka corpus
behind AgentX/InferenceX (48,658 requests). Where a benchmark has no public tool times
(AutomationBench, SWE-bench with mini-SWE-agent) the shape says what was assumed.

A log-normal is given by its median and the sigma of its logarithm.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Positive values around a median, within limits."""

    median: float
    sigma: float
    low: float
    high: float

    def draw(self, chance: random.Random) -> float:
        """One value."""
        value = self.median * math.exp(self.sigma * chance.gauss(0.0, 1.0))
        return min(self.high, max(self.low, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKind:
    """A share of the tool calls, with the command head that is told and how long they last."""

    share: float
    name: str
    key: str
    duration_s: LogNormal | None = None
    between_s: tuple[float, float] | None = None
    """Log-uniform between these instead."""

    def draw(self, chance: random.Random) -> float:
        """One duration in seconds."""
        if self.duration_s is not None:
            return self.duration_s.draw(chance)
        assert self.between_s is not None
        low, high = self.between_s
        return math.exp(chance.uniform(math.log(low), math.log(high)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of agent task."""

    name: str
    source: str
    """Where the numbers come from."""
    shared_tokens: int
    """System prompt and tool schemas, the same in every session."""
    first_tokens: LogNormal
    """Task text behind them."""
    turns: LogNormal
    growth_tokens: LogNormal
    """What tools add to the prompt per turn."""
    jump_share: float
    """Turns that read a large file instead."""
    jump_tokens: LogNormal
    output_tokens: LogNormal
    tools: tuple[ToolKind, ...]
    tool_timeout_s: float | None
    """The harness's limit, told at the start; calls end there."""
    context_tokens_max: int
    """The session ends before its context grows beyond this."""


def _short(share: float, median_s: float, key: str, name: str = "bash") -> ToolKind:
    spread = LogNormal(median=median_s, sigma=1.0, low=0.005, high=5.0)
    return ToolKind(share=share, name=name, key=key, duration_s=spread)


_SWE_TOOLS: Final = (
    _short(0.42, 0.02, "", "Read"),
    _short(0.20, 0.12, "git"),
    ToolKind(
        share=0.30,
        name="Bash",
        key="python -m pytest",
        duration_s=LogNormal(median=7.5, sigma=0.35, low=0.5, high=60.0),
    ),
    ToolKind(
        share=0.08,
        name="Bash",
        key="python",
        duration_s=LogNormal(median=2.0, sigma=1.2, low=0.05, high=120.0),
    ),
)
_MINI_TOOLS: Final = (
    _short(0.545, 0.025, "cat"),
    _short(0.127, 0.1, "grep"),
    _short(0.093, 0.45, "python -c"),
    ToolKind(share=0.078, name="bash", key="python", between_s=(1.0, 5.0)),
    ToolKind(share=0.063, name="bash", key="python", between_s=(5.0, 30.0)),
    # 9.4 % of the published calls run into the limit of 30 s.
    ToolKind(share=0.094, name="bash", key="pip install", between_s=(25.0, 90.0)),
)

SWE: Final = Shape(
    name="swe",
    source=(
        "published: Claude Code on SWE-rebench, local model (turns p50 45, first prompt p50 13.4k, "
        "growth p50 409 and p99 10k, replies p50 144, a third of the calls about 7 s)"
    ),
    shared_tokens=12_000,
    first_tokens=LogNormal(median=1_400, sigma=0.6, low=200, high=12_000),
    turns=LogNormal(median=42, sigma=0.55, low=5, high=60),
    growth_tokens=LogNormal(median=330, sigma=1.0, low=20, high=6_000),
    jump_share=0.03,
    jump_tokens=LogNormal(median=7_000, sigma=0.5, low=2_000, high=20_000),
    output_tokens=LogNormal(median=144, sigma=1.08, low=8, high=4_000),
    tools=_SWE_TOOLS,
    tool_timeout_s=None,
    context_tokens_max=120_000,
)
MINI_SWE_LITE: Final = Shape(
    name="swe-lite",
    source=(
        "tool times and turns published: mini-SWE-agent on Terminal-Bench (turns p50 18, p90 36); "
        "token shape assumed: 3k system prompt and task, 700 tokens a turn"
    ),
    shared_tokens=2_048,
    first_tokens=LogNormal(median=900, sigma=0.6, low=100, high=8_000),
    turns=LogNormal(median=18, sigma=0.55, low=4, high=58),
    growth_tokens=LogNormal(median=600, sigma=1.1, low=20, high=8_000),
    jump_share=0.0,
    jump_tokens=LogNormal(median=1, sigma=0.0, low=1, high=1),
    output_tokens=LogNormal(median=130, sigma=0.9, low=16, high=2_000),
    tools=_MINI_TOOLS,
    tool_timeout_s=30.0,
    context_tokens_max=60_000,
)
SWE_VERIFIED: Final = Shape(
    name="swe-verified",
    source="assumed: SWE-Lite's tools with half as many turns again and larger repositories",
    shared_tokens=2_048,
    first_tokens=LogNormal(median=1_200, sigma=0.6, low=100, high=8_000),
    turns=LogNormal(median=27, sigma=0.5, low=6, high=80),
    growth_tokens=LogNormal(median=750, sigma=1.1, low=20, high=10_000),
    jump_share=0.02,
    jump_tokens=LogNormal(median=6_000, sigma=0.4, low=2_000, high=16_000),
    output_tokens=LogNormal(median=140, sigma=0.9, low=16, high=2_000),
    tools=_MINI_TOOLS,
    tool_timeout_s=30.0,
    context_tokens_max=90_000,
)
TERMINAL_BENCH: Final = Shape(
    name="terminal-bench",
    source="assumed: Claude Code's prompts (published) with builds and installs of up to 5 minutes",
    shared_tokens=14_000,
    first_tokens=LogNormal(median=1_000, sigma=0.5, low=100, high=6_000),
    turns=LogNormal(median=24, sigma=0.6, low=4, high=80),
    growth_tokens=LogNormal(median=450, sigma=1.2, low=20, high=10_000),
    jump_share=0.02,
    jump_tokens=LogNormal(median=8_000, sigma=0.5, low=2_000, high=20_000),
    output_tokens=LogNormal(median=180, sigma=1.0, low=16, high=3_000),
    tools=(
        _short(0.60, 0.04, "cat"),
        ToolKind(share=0.22, name="Bash", key="python", between_s=(0.5, 10.0)),
        ToolKind(share=0.13, name="Bash", key="make", between_s=(5.0, 60.0)),
        ToolKind(share=0.05, name="Bash", key="apt-get", between_s=(20.0, 300.0)),
    ),
    tool_timeout_s=600.0,
    context_tokens_max=120_000,
)
AUTOMATION_BENCH: Final = Shape(
    name="automation-bench",
    source="assumed: business workflows, API calls of 0.1-4 s, short sessions, small answers",
    shared_tokens=6_000,
    first_tokens=LogNormal(median=800, sigma=0.5, low=100, high=4_000),
    turns=LogNormal(median=11, sigma=0.45, low=3, high=30),
    growth_tokens=LogNormal(median=350, sigma=0.9, low=20, high=5_000),
    jump_share=0.0,
    jump_tokens=LogNormal(median=1, sigma=0.0, low=1, high=1),
    output_tokens=LogNormal(median=110, sigma=0.8, low=12, high=1_500),
    tools=(ToolKind(share=1.0, name="api", key="api", between_s=(0.1, 4.0)),),
    tool_timeout_s=60.0,
    context_tokens_max=40_000,
)
AGENTX: Final = Shape(
    name="agentx",
    source=(
        "published: Weka corpus (prompts p50 105k, p90 236k; new tokens per turn p50 704, mean "
        "4.5k; replies p50 216, p90 899; gaps p50 9 s, p90 67 s), gaps cut at 60 s"
    ),
    shared_tokens=0,
    first_tokens=LogNormal(median=45_000, sigma=0.6, low=12_000, high=150_000),
    turns=LogNormal(median=42, sigma=0.7, low=5, high=60),
    growth_tokens=LogNormal(median=900, sigma=1.1, low=64, high=20_000),
    jump_share=0.04,
    jump_tokens=LogNormal(median=20_000, sigma=0.7, low=4_000, high=80_000),
    output_tokens=LogNormal(median=216, sigma=1.1, low=16, high=4_000),
    tools=(
        ToolKind(
            share=1.0,
            name="gap",
            key="",
            duration_s=LogNormal(median=9.0, sigma=1.4, low=1.0, high=60.0),
        ),
    ),
    tool_timeout_s=None,
    context_tokens_max=200_000,
)
SINGLE: Final = Shape(
    name="single",
    source="one call per session, nothing shared: prompts log-normal around 8k",
    shared_tokens=0,
    first_tokens=LogNormal(median=8_000, sigma=0.8, low=500, high=60_000),
    turns=LogNormal(median=1, sigma=0.0, low=1, high=1),
    growth_tokens=LogNormal(median=1, sigma=0.0, low=1, high=1),
    jump_share=0.0,
    jump_tokens=LogNormal(median=1, sigma=0.0, low=1, high=1),
    output_tokens=LogNormal(median=144, sigma=1.0, low=8, high=2_000),
    tools=(_short(1.0, 0.1, "none"),),
    tool_timeout_s=None,
    context_tokens_max=64_000,
)
SHAPES: Final = {
    shape.name: shape
    for shape in (
        SWE,
        MINI_SWE_LITE,
        SWE_VERIFIED,
        TERMINAL_BENCH,
        AUTOMATION_BENCH,
        AGENTX,
        SINGLE,
    )
}
"""Every synthetic kind of task by name."""

BLENDS: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "mixed": (("terminal-bench", 89.0), ("swe-lite", 300.0)),
}
"""Workloads of several kinds: (shape, weight). `mixed` has the paper's counts of tasks."""


def draw_sessions(name: str, number: int, seed: int) -> list[SessionScript]:
    """Sessions of a synthetic workload; equal arguments give equal sessions.

    Raises:
        ValueError: no such workload.
    """
    chance = random.Random(f"{name}/{seed}")
    parts = BLENDS.get(name, ((name, 1.0),))
    for part, _ in parts:
        if part not in SHAPES:
            known = ", ".join((*SHAPES, *BLENDS))
            raise ValueError(f"no synthetic workload {name!r}; there are {known}")
    shapes = chance.choices(
        [SHAPES[part] for part, _ in parts], [weight for _, weight in parts], k=number
    )
    return [_session(shape, f"{shape.name}-{n}", chance) for n, shape in enumerate(shapes)]


def _session(shape: Shape, session_id: str, chance: random.Random) -> SessionScript:
    turns: list[TurnScript] = []
    context = 0
    new = shape.shared_tokens + int(shape.first_tokens.draw(chance))
    for _ in range(round(shape.turns.draw(chance))):
        output = int(shape.output_tokens.draw(chance))
        if turns and context + new + output > shape.context_tokens_max:
            break
        turns.append(
            TurnScript(
                input_tokens=context + new,
                output_tokens=output,
                kept_tokens=context,
                tools=(_tool(shape, chance),),
            )
        )
        context += new + output
        is_jump = chance.random() < shape.jump_share
        new = int((shape.jump_tokens if is_jump else shape.growth_tokens).draw(chance))
    return SessionScript(
        session_id=session_id,
        turns=tuple(turns),
        shared_tokens=shape.shared_tokens,
        family=shape.name,
    )


def _tool(shape: Shape, chance: random.Random) -> ToolScript:
    kind = chance.choices(shape.tools, [tool.share for tool in shape.tools])[0]
    limit_s = shape.tool_timeout_s
    duration_s = kind.draw(chance)
    return ToolScript(
        name=kind.name,
        key=kind.key,
        duration_s=duration_s if limit_s is None else min(duration_s, limit_s),
        timeout_s=limit_s,
    )


def poisson_arrivals(per_s: float, number: int, seed: int) -> tuple[float, ...]:
    """Arrival times of an open loop with `per_s` sessions a second on average."""
    chance = random.Random(f"arrivals/{seed}")
    times: list[float] = []
    now_s = 0.0
    for _ in range(number):
        now_s += chance.expovariate(per_s)
        times.append(now_s)
    return tuple(times)
