"""CONCUR (arXiv 2601.22705): thrashing in the middle of a run, and what holds it off."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.studies.grid import PLACEHOLDER, QWEN, V3, cross
from tao_coordinator.study.study import (
    DECISION,
    HIT_MIDDLE,
    HIT_RATE,
    HOLD_ANY,
    KV_PEAK,
    MAKESPAN,
    OURS,
    TASK,
    TOKENS_RUN,
    TPOT_P99,
    TTFT_P50,
    Claim,
    Column,
    Plot,
    Study,
    StudyOptions,
    arms,
)

PLAIN: Final = "round-robin"
"""One backend: no control at all."""
BATCH_SIZES: Final = (8, 16)
"""Limits of the engine's own batch; the static caps' own, to tell calls from agents. 16 is also the
smallest batch that readers report of the paper's DeepSeek-V3."""
REACTIVE: Final = "reactive eviction"
HOST_RATIO: Final = 2.0
"""HiCache's default."""


def _batch_arm(size: int) -> str:
    return f"engine max_num_seqs {size}"


def _cells(options: StudyOptions) -> list[Cell]:
    qwen, v3 = (
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
    )
    chosen = arms(OURS, PLAIN, "static-cap:sessions_max=8", "static-cap:sessions_max=16",
                  "thunderagent", "concur-aimd", "concur-pi")  # fmt: skip
    found: list[Cell] = []
    for cell in (qwen, v3):
        found += cross(options, [cell], chosen)
        plain = PolicyChoice(PLAIN)
        for size in BATCH_SIZES:
            limited = replace(cell, max_sequences=size)
            found += cross(options, [limited], [(_batch_arm(size), plain)])
        found += cross(options, [replace(cell, evicts_whole=True)], [(REACTIVE, plain)])
    tiered = replace(qwen, panel=TIERED, host_ratio=HOST_RATIO)
    return found + cross(options, [tiered], arms(OURS, PLAIN, "concur-aimd"))


TIERED: Final = "Qwen3-32B above a host tier of 2x"
_STALLS: Final = (
    "a decode step beside a chunk of 8,192 prompt tokens lasts 0.6 s and more in the step law, and "
    "few replies escape that; chunk size and hardware of theirs are not public"
)
_AIMD: Final = (
    "the law as readers report it cuts below a hit rate of 0.2 only, which the shared prompt alone "
    "exceeds: the window climbs on; whether the paper's agents share less is open"
)


def _over(what: str, published: str, panel: str, arm: str, rivals: tuple[str, ...], why: str
          ) -> Claim:  # fmt: skip
    return Claim(f"{panel}: throughput over {what}, {arm}", published, panel, arm, rivals,
                 TOKENS_RUN, why)  # fmt: skip


def _own(what: str, published: str, arm: str, column: Column, why: str, panel: str = "Qwen3-32B"
         ) -> Claim:  # fmt: skip
    return Claim(what, published, panel, arm, (), column, why)


_NO_FIGURE: Final = "the paper's own figure against this arm is not public"
_CLAIMS: Final = (
    _over("no control", "up to 4.09x", "Qwen3-32B", "concur-aimd", (PLAIN,), _AIMD),
    *(
        _over("no control", "up to 4.09x", "Qwen3-32B", arm, (PLAIN,),
              "theirs is the best of several settings, which are not public; this is one setting")
        for arm in ("concur-pi", OURS)
    ),
    _over("a static max batch size", "a baseline", "Qwen3-32B", OURS,
          tuple(_batch_arm(size) for size in BATCH_SIZES),
          f"a smaller batch runs fewer calls at a time but lets all agents in, whose caches "
          f"compete as before; {_NO_FIGURE}"),
    _over("reactive eviction", "a baseline", "Qwen3-32B", OURS, (REACTIVE,),
          f"whole sessions or single blocks, the same tokens are lost; {_NO_FIGURE}"),
    _over("no control", "up to 1.9x", "DeepSeek-V3", OURS, (PLAIN,),
          "64 agents on a derived pool of 442,000 tokens; readers of the paper report batches of "
          "16 to 40 on 8 or 16 GPUs: how much of the gap is pressure is open"),
    _own("DeepSeek-V3: hit rate at a batch of 16", "0.804 (a reader's notes)",
         "static-cap:sessions_max=16", HIT_RATE,
         "16 of 64 agents run here, and the next follows when one ends; pool and contexts differ, "
         "and which weighs more is open", "DeepSeek-V3"),
    _own("hit rate under control", ">= 0.85", "concur-aimd", HIT_RATE, _AIMD),
    _own("hit rate, tao", ">= 0.85", OURS, HIT_RATE,
         "within what is published; how far theirs is above the bound is not public"),
    _own("hit rate without control", "<= 0.40", PLAIN, HIT_RATE,
         "as published; the shared prompt is most of what is left"),
    _own("hit rate in the middle third, without control", "collapses, <= 0.40 after 30 s", PLAIN,
         HIT_MIDDLE, "as published, but later: contexts must have grown before the pool is short"),
    _own("hit rate in the middle third, engine max_num_seqs 16", "collapses",
         _batch_arm(16), HIT_MIDDLE, "as published: those that wait for a place lose their caches"),
    _own("hit rate in the middle third, reactive eviction", "collapses", REACTIVE, HIT_MIDDLE,
         "as published: it comes when the pool is short already"),
    _own("hit rate in the middle third, concur-aimd", ">= 0.85 throughout", "concur-aimd",
         HIT_MIDDLE, _AIMD),
    _own("hit rate in the middle third, tao", ">= 0.85 throughout", OURS, HIT_MIDDLE,
         "within what is published, as over the whole run"),
    _own("hit rate in the middle third above a host tier, no control",
         "HiCache slows down about 3x (a reader's notes)", PLAIN, HIT_MIDDLE,
         "hits count both tiers; the modelled tier loads at 50 GB/s per GPU beside the batch, and "
         "what slows HiCache down under concurrency is not modelled", TIERED),
    _own("per-token p99 without control", "180 ms", PLAIN, TPOT_P99, _STALLS),
    _own("per-token p99 under control, tao", "45 ms", OURS, TPOT_P99, _STALLS),
    _own("peak KV, tao", "<= 70 %", OURS, KV_PEAK,
         "peak of referenced blocks; a budget uses what it may, thrashing shows in hits"),
    _own("one decision, tao", "< 0.5 ms", OURS, DECISION,
         "mean of all steps on one core of the machine that ran the study; theirs is not told"),
)  # fmt: skip
_DRAWN: Final = (OURS, PLAIN, "static-cap:sessions_max=8", _batch_arm(16), REACTIVE, "concur-aimd",
                 "concur-pi")  # fmt: skip

STUDIES: Final = (
    Study(
        name="concur",
        title="CONCUR: a batch of agents on one engine",
        asks="All agents start at once. Without control the cache thrashes in the middle of the "
        "run, once contexts have grown; what do control laws, caps and `tao` make of it?",
        make_cells=_cells,
        columns=(MAKESPAN, TOKENS_RUN, TASK, HIT_RATE, HIT_MIDDLE, TPOT_P99, KV_PEAK, TTFT_P50,
                 HOLD_ANY, DECISION),
        versus=(MAKESPAN, TOKENS_RUN, TASK, TPOT_P99),
        claims=_CLAIMS,
        plots=(
            Plot("hit-rate", "timeline", "hit_rate", "Hit rate over time", "hits / prompt tokens",
                 ("Qwen3-32B", "DeepSeek-V3"), _DRAWN),
            Plot("running", "timeline", "running", "Running requests", "requests in the engine",
                 ("Qwen3-32B",), _DRAWN),
        ),
        reading="Agents are coding agents (`swe`); the paper's traces are not public, and figures "
        "beyond its abstract come from a digest (hit rates, 180 and 45 ms, 70 %, 0.5 ms) or from "
        "readers' notes. Its arms are the plain batch (`round-robin` on one engine), a static max "
        "batch size (`engine max_num_seqs`: calls that run at a time, where `static-cap` counts "
        "agents from their first call to their last) and reactive eviction. Of the last no more "
        "is public than its name. Modelled is an engine that, when its pool is short, takes the "
        "whole cache of idle sessions but what they share, least recently used first, between "
        "their turns; no control is the same block by block, as engines do. `thunderagent` pauses "
        "reactively in front of the engine. Token rates are those of the whole run: all agents "
        "start at once. Middle third: of each run's own time.",
    ),
)  # fmt: skip
