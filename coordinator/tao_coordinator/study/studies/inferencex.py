"""The InferenceX replay of TAO (Appendix F, Table 7, Figure 9): long contexts, a fixed window."""

from typing import Final

from tao_coordinator.simulation.engine_constants import PRESETS
from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import (
    FLASH,
    FLASH_POOL_TOKENS,
    PLACEHOLDER,
    cross,
)
from tao_coordinator.study.study import (
    HIT_RATE,
    HOLD_ANY,
    HOLD_STARTED,
    MOVED,
    OURS,
    TOKENS,
    TTFT,
    TTFT_P50,
    TTFT_P99,
    WORKING_SET,
    Claim,
    Column,
    Plot,
    Study,
    StudyOptions,
    arms,
)

SESSIONS: Final = 393
"""In the published corpus."""
WARM_S: Final = 600.0
WINDOW_S: Final = 1_800.0
GAP_S_MAX: Final = 10.0
"""The published replay's own rule: longer pauses are cut to this."""
UNCUT: Final = 100_000
"""Turns, and tokens of a reply: none in the corpus comes near."""
WORKERS: Final = (16, 32, 64)
_RIVALS: Final = ("round-robin", "cache-aware", "dynamo-cost", "thunderagent", "thunderagent-decay")
_POOLS: Final = {
    "4.4M tokens": PRESETS[FLASH].kv_capacity_tokens,
    "0.6M tokens": FLASH_POOL_TOKENS,
}
"""Of each backend: the two published figures for this model on four H100s."""


def _panel(pool: str, workers: int) -> str:
    return f"{pool}, {workers} workers"


def _cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for name, pool in _POOLS.items():
        workload = options.workload(
            "agentx",
            gap_s_max=GAP_S_MAX,
            turns_max=UNCUT,
            # What no engine with this pool could serve is not asked of it.
            context_tokens_max=min(pool, PRESETS[FLASH].context_tokens_max),
            output_tokens_max=UNCUT,
        )
        found += [
            Cell(
                panel=_panel(name, workers),
                arm="",
                policy=PLACEHOLDER,
                workload=workload,
                seed=0,
                sessions=max(options.sessions(SESSIONS), 4 * workers),
                engine=FLASH,
                num_backends=2,
                pools=(pool, pool),
                workers=workers,
                warm_s=WARM_S,
                end_s=WARM_S + WINDOW_S,
                is_window=True,
                x=float(workers),
            )
            for workers in WORKERS
        ]
    return cross(options, found, arms(OURS, "tao-paper", "tao-paper@0.9", *_RIVALS))


_ROOMY: Final = (
    "nobody is held: only where new sessions are put differs; open: what seeds differ by"
)
_FULL: Final = (
    "`tao` holds new sessions for the growth that it reserves, which makes the "
    "difference; its started ones wait no longer than ThunderAgent's"
)
_SMALL: Final = (
    "a pool holds a handful of these contexts: `tao` keeps room for their growth and runs fewer "
    "of them at a time; ThunderAgent runs more and leaves started ones waiting (longest hold); "
    "open: what each costs"
)
_STARVED: Final = (
    "cache-aware loses its caches here (hit rate), and ThunderAgent's started sessions wait long; "
    "whoever is still held at the window's end counts for nobody"
)
_WHY: Final = {
    # Pool, workers: decode, TTFT, hit rate.
    ("4.4M tokens", 16): (_ROOMY, "first here too", "first here too"),
    ("4.4M tokens", 32): (_ROOMY, _ROOMY, _ROOMY),
    ("4.4M tokens", 64): (
        "`tao` holds new sessions for the growth that it reserves; open: what seeds "
        "differ by, and how the paper gains",
        _FULL,
        "first here too",
    ),
    ("0.6M tokens", 16): (
        _SMALL,
        "new sessions wait for room, which makes up nearly all of the mean",
        "first here too",
    ),
    ("0.6M tokens", 32): (_SMALL, _STARVED, "first here too"),
    ("0.6M tokens", 64): (_SMALL, _STARVED, "first here too"),
}
"""Of the runs with the recorded sessions."""


def _claims() -> tuple[Claim, ...]:
    tokens = dict(zip(WORKERS, ("+4.2 %", "+1.8 %", "+10.1 %"), strict=True))
    found: list[Claim] = []
    for pool in _POOLS:
        for workers in WORKERS:
            why = _WHY[pool, workers]
            panel = _panel(pool, workers)
            ttft = "first" if workers == 16 else "not first: cache-aware is"
            found += [
                Claim(
                    f"{panel}: decode tok/s", tokens[workers], panel, OURS, _RIVALS, TOKENS, why[0]
                ),
                Claim(f"{panel}: TTFT", ttft, panel, OURS, _RIVALS, TTFT, why[1]),
                Claim(f"{panel}: hit rate", "first", panel, OURS, _RIVALS, HIT_RATE, why[2]),
            ]
    return tuple(found)


STUDIES: Final = (
    Study(
        name="inferencex",
        title="TAO, Appendix F: the InferenceX replay at contexts of up to 1M tokens",
        asks="Recorded Claude Code sessions with everything they had in their contexts, two "
        "backends of four H100s with DeepSeek-V4-Flash, half an hour: who delivers, who waits?",
        make_cells=_cells,
        columns=(TOKENS, TTFT, TTFT_P50, TTFT_P99, HIT_RATE, HOLD_STARTED, HOLD_ANY, MOVED,
                 Column("turns", "turns", 0, higher_is_better=True), WORKING_SET),
        versus=(TOKENS, TTFT, HIT_RATE),
        claims=_claims(),
        plots=(
            Plot("hit-rate", "lines", "hit_rate", "Hit rate", "hits / prompt tokens",
                 tuple(_POOLS), x_title="workers"),
            Plot("tokens", "lines", "output_tokens_per_s", "Throughput", "output tokens/s",
                 tuple(_POOLS), x_title="workers"),
        ),
        reading="`--trace agentx=PATH` takes the recorded corpus (Weka; 393 of its sessions were "
        "published as AgentX), else synthetic sessions of its shape stand in, which stay below "
        "200k tokens. Pauses are cut to 10 s as in the published replay; contexts only at what "
        "the model and one pool can hold. 1,800 s are measured after 600 s of warming up: turns "
        "asked for and answered within them; sessions do not end in so short a time, and a turn "
        "that is held at the end counts in no latency. Which pool the published run had is not "
        "known, hence both.",
    ),
)  # fmt: skip
