"""CONCUR (arXiv 2601.22705): thrashing in the middle of a run; and the published hit-rate cliff."""

from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import CODER, PLACEHOLDER, QWEN, V3, cross
from tao_coordinator.study.study import (
    DECISION,
    HIT_RATE,
    HOLD_ANY,
    KV_PEAK,
    MAKESPAN,
    OURS,
    TASK,
    TOKENS,
    TOTAL_TOKENS,
    TPOT_P99,
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

HIT_LOADED: Final = Column("hit_rate_loaded", "hit rate", 3, higher_is_better=True)


def _batch_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        Cell(
            panel=name,
            arm="",
            policy=PLACEHOLDER,
            workload=options.workload("swe"),
            seed=0,
            sessions=options.sessions(number),
            engine=engine,
            workers=number,
        )
        for name, engine, number in (("Qwen3-32B", QWEN, 48), ("DeepSeek-V3", V3, 64))
    ]
    chosen = arms(OURS, "round-robin", "static-cap:sessions_max=8", "static-cap:sessions_max=16",
                  "thunderagent", "concur-aimd", "concur-pi")  # fmt: skip
    return cross(options, cells, chosen)


_CONCUR: Final = Study(
    name="concur",
    title="CONCUR: a batch of agents on one engine",
    asks="All agents start at once. Without control the cache thrashes in the middle of the run, "
    "once contexts have grown; what do control laws, caps and `tao` make of it?",
    make_cells=_batch_cells,
    columns=(MAKESPAN, TOKENS, TASK, HIT_RATE, TPOT_P99, KV_PEAK, TTFT_P50, HOLD_ANY, DECISION),
    versus=(MAKESPAN, TASK, TPOT_P99),
    claims=(
        *(
            Claim(f"Qwen3-32B: throughput over no control, {arm}", "up to 4.09x", "Qwen3-32B", arm,
                  ("round-robin",), TOKENS,
                  "the published law rarely cuts where a shared prompt alone gives 27 % hits"
                  if arm == "concur-aimd" else "")
            for arm in ("concur-aimd", "concur-pi", OURS)
        ),
        Claim("DeepSeek-V3: throughput over no control, tao", "up to 1.9x", "DeepSeek-V3", OURS,
              ("round-robin",), TOKENS),
        Claim("hit rate under control", ">= 0.85", "Qwen3-32B", "concur-aimd", (), HIT_RATE),
        Claim("hit rate, tao", ">= 0.85", "Qwen3-32B", OURS, (), HIT_RATE),
        Claim("hit rate without control", "<= 0.40", "Qwen3-32B", "round-robin", (), HIT_RATE),
        Claim("per-token p99 without control", "180 ms", "Qwen3-32B", "round-robin", (), TPOT_P99),
        Claim("per-token p99 under control, tao", "45 ms", "Qwen3-32B", OURS, (), TPOT_P99),
        Claim("peak KV, tao", "<= 70 %", "Qwen3-32B", OURS, (), KV_PEAK,
              "peak of referenced blocks; a budget uses what it may, thrashing shows in hits"),
        Claim("one decision, tao", "< 0.5 ms", "Qwen3-32B", OURS, (), DECISION),
    ),
    plots=(
        Plot("hit-rate", "timeline", "hit_rate", "Hit rate over time", "hits / prompt tokens",
             ("Qwen3-32B", "DeepSeek-V3")),
        Plot("running", "timeline", "running", "Running requests", "requests in the engine",
             ("Qwen3-32B",)),
    ),
    reading="Agents are coding agents (`swe`); the paper's traces are not public. The reactive arm "
    "of the paper evicts inside the engine and cannot be built in front of one; "
    "`thunderagent` pauses reactively instead.",
)  # fmt: skip

PODS: Final = 4
"""Backends of the published runs."""
CLIFF: Final = (
    (0.45, 0.932, 0.930),
    (0.75, 0.725, 0.706),
    (0.87, 0.336, 0.479),
    (1.18, 0.043, 0.309),
    (1.48, 0.002, 0.257),
    (1.85, 0.002, 0.236),
)
"""Working set over pool; published hit rates without control and under ThunderAgent."""


def _cliff_cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for pressure, _, _ in CLIFF:
        found.append(
            Cell(
                panel=f"{pressure:g}",
                arm="",
                policy=PLACEHOLDER,
                workload=options.workload("agentx", gap_s_max=10.0),
                seed=0,
                sessions=options.sessions(1_000),
                engine=CODER,
                num_backends=PODS,
                pressure=pressure,
                end_s=3_600.0,
                warm_s=600.0,
                x=pressure,
            )
        )
    chosen = arms(OURS, "sticky-least-loaded", "dynamo-cost", "thunderagent", "thunderagent-decay")
    return cross(options, found, chosen)


_CLIFF: Final = Study(
    name="cliff",
    title="The hit-rate cliff beside published measurements",
    asks="One hour on the Weka corpus, pauses cut to 10 s, Qwen3-Coder-30B-A3B on two H100s: where "
    "do the hits fall, and what is left of them under ThunderAgent?",
    make_cells=_cliff_cells,
    columns=(WORKING_SET, HIT_LOADED, TOKENS, TOTAL_TOKENS, TTFT_P50, TTFT_P99),
    versus=(HIT_LOADED, TOKENS, TTFT_P50),
    claims=tuple(
        claim
        for pressure, plain, thunder in CLIFF
        for claim in (
            Claim(f"{pressure:g}: hit rate without control", f"{plain:.3f}", f"{pressure:g}",
                  "dynamo-cost", (), HIT_LOADED,
                  "a cost router moves sessions that could have stayed"
                  if pressure < 0.6 else ""),
            Claim(f"{pressure:g}: hit rate under ThunderAgent (here: with decay)",
                  f"{thunder:.3f}", f"{pressure:g}", "thunderagent-decay", (), HIT_LOADED),
        )
    ),
    plots=(Plot("hit-rate", "lines", "hit_rate_loaded", "Hit rate", "hits / prompt tokens", ("",),
                x_title="working set / pool"),),
    reading="Published: four pods of two H100s behind a gateway, vLLM 0.28, 45-60 minutes. Panels "
    "are named by workers x mean context over the pools; the first column is what it was in the "
    "run. `dynamo-cost` stands for the gateway: it scores backends by cache and load, and moves "
    "sessions; where none moves (`sticky-least-loaded`) the cliff sits further right.",
)  # fmt: skip

STUDIES: Final = (_CONCUR, _CLIFF)
