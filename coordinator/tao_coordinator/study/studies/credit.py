"""TAO's Figure 3: what is left of an idle session's cache, and whether it decays."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import (
    FLASH,
    FLASH_POOL_TOKENS,
    GLM,
    PLACEHOLDER,
    QWEN,
    cross,
)
from tao_coordinator.study.study import OURS, Claim, Column, Plot, Study, StudyOptions, arms

_PRESSURES: Final = (0.7, 1.2, 2.0)
_ENGINES: Final = (("V4-Flash x2", FLASH, 2), ("Qwen3-32B x4", QWEN, 4), ("GLM-4.7 x1", GLM, 1))
_STICKY: Final = "sticky-least-loaded"

_HALF_LIFE: Final = Column("half_life_s", "half-life s", 1)
_COLUMNS: Final = (
    Column("returns", "returns", 0),
    Column("survived", "survived %", 1, 100.0, higher_is_better=True),
    _HALF_LIFE,
    Column("half_life_low_s", "from", 1),
    Column("half_life_high_s", "to", 1),
    Column("decay_r2", "R2 of the decay", 3, higher_is_better=True),
    Column("cliff_s", "cliff s", 1),
    Column("cliff_r2", "R2 of the cliff", 3, higher_is_better=True),
    Column("all_or_nothing", "all or nothing %", 1, 100.0),
    Column("published_decay_error", "error, h = 10 s %", 1, 100.0, higher_is_better=False),
    Column("fitted_decay_error", "error, fitted h %", 1, 100.0, higher_is_better=False),
    Column("shadow_error", "error, shadow LRU %", 1, 100.0, higher_is_better=False),
)


def _cells(options: StudyOptions) -> list[Cell]:
    cells = [
        Cell(
            panel=f"{name}, swe, {pressure}",
            arm="",
            policy=PLACEHOLDER,
            workload=options.workload("swe"),
            seed=0,
            sessions=options.sessions(240),
            engine=engine,
            num_backends=number,
            pools=(FLASH_POOL_TOKENS,) * number if engine == FLASH else None,
            pressure=pressure,
            watch="survival",
            x=pressure,
        )
        for name, engine, number in _ENGINES
        for pressure in _PRESSURES
    ]
    cells = [replace(cell, sessions=max(cell.sessions, 2 * cell.num_workers())) for cell in cells]
    return cross(options, cells, arms(_STICKY, OURS, "tao-paper", "tao-paper@0.9"))


STUDIES: Final = (
    Study(
        name="credit-decay",
        title="TAO, Figure 3: what is left of an idle session's cache",
        asks="How much of a session's cache does the engine still have when it comes back, as a "
        "function of how long it was idle? Is that a decay, and of what half-life?",
        make_cells=_cells,
        columns=_COLUMNS,
        versus=(),
        claims=tuple(
            Claim(
                f"{name}, {pressure} of the pool, nobody held: half-life s",
                "10 (a setting, not the fit)", f"{name}, swe, {pressure}", _STICKY, (), _HALF_LIFE,
                "an engine's LRU gives a cliff, not a decay: see R2",
            )
            for name, _, _ in _ENGINES
            for pressure in _PRESSURES[1:]
        ),
        plots=(
            Plot("survival", "survival", "", "Cache that an idle session finds again",
                 "share of its private tokens, median"),
        ),
        reading="One observation per turn that comes back to the backend of the turn before; idle "
        "from the last token to the moment the engine looks, holds and queues included. Medians of "
        "buckets that double in width, 95 % bootstrap intervals over sessions; decay 2^(-x/h) and "
        "cliff (all until a time, nothing after) are fitted to the medians, one parameter each. "
        "Errors: found cache beside what was predicted, over the private tokens. No half-life: "
        "fewer than three filled buckets, or no bucket whose median loses 5 %.",
    ),
)  # fmt: skip
