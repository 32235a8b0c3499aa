"""A small recorded trace, and what is asked of it."""

from pathlib import Path

from trace_rows import lines

from tao_coordinator.replay.plan import ReplaySettings
from tao_coordinator.simulation.engine_constants import PRESETS
from tao_coordinator.study.policy_choice import PolicyChoice


def write_trace(path: Path, sessions: int = 4, turns: int = 5, growth: int = 2_000) -> Path:
    rows: list[dict[str, object]] = []
    for session in range(sessions):
        for turn in range(turns):
            row: dict[str, object] = {
                "request_id": f"s{session}:{turn}",
                "session_id": f"s{session}",
                "turn": turn,
                "input_length": 4_000 + growth * turn,
                "output_length": 100,
                "llm_ms": 1_000,
                "arrival_ms": 4_000 * turn,
            }
            if turn:
                row["wait_for"] = [f"s{session}:{turn - 1}"]
                row["tool_wait_ms"] = 3_000
                row["tool_events"] = [
                    {
                        "tool_call_id": "a", "tool_class": "Bash", "tool_key": "make",
                        "started_at_ms": 4_000 * turn - 3_000, "ended_at_ms": 4_000 * turn,
                        "duration_ms": 3_000,
                    }
                ]  # fmt: skip
            rows.append(row)
    path.write_text(lines(rows), encoding="utf-8")
    return path


def settings(trace: Path, **more: object) -> ReplaySettings:
    known: dict[str, object] = {
        "policies": (PolicyChoice("tao"), PolicyChoice("tao-paper", 0.9)),
        "engine": PRESETS["qwen3-32b-bf16-tp2"],
        "trace_digest": "",
    }
    return ReplaySettings(trace=str(trace), **{**known, **more})  # pyright: ignore[reportArgumentType]
