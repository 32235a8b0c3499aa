"""The published hit-rate cliff: pass-through and ThunderAgent on four pods, and on one."""

from dataclasses import replace
from typing import Final, NamedTuple

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import CODER, PLACEHOLDER, cross
from tao_coordinator.study.study import (
    OURS,
    TOKENS,
    TOTAL_TOKENS,
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
PODS: Final = 4
"""Backends of the published runs."""
PLAIN: Final = "dynamo-cost"
"""Stands for the published gateway: no control, but a router that moves sessions."""
ALONE: Final = "sticky-least-loaded"
"""No control in front of one pod: there is nothing to route."""


class Point(NamedTuple):
    """One published point on four pods."""

    pressure: float
    """Working set over pools."""
    plain: float
    """Hit rate without control."""
    thunder: float
    """Hit rate under ThunderAgent."""
    ttft_p50_s: float
    """Without control."""

    @property
    def panel(self) -> str:
        """The panel that stands beside it."""
        return f"{PODS} pods, {self.pressure:g}"


CLIFF: Final = (
    Point(0.45, 0.932, 0.930, 0.4),
    Point(0.75, 0.725, 0.706, 0.5),
    Point(0.87, 0.336, 0.479, 8.2),
    Point(1.18, 0.043, 0.309, 36.0),
    Point(1.48, 0.002, 0.257, 66.0),
    Point(1.85, 0.002, 0.236, 102.0),
)
SATURATED: Final = 1.0
"""Points beyond have nothing but misses, and publish one token rate."""
ONE_POD: Final = "1 pod, 1.48"


def cliff_cells(options: StudyOptions) -> list[Cell]:
    """The points on four pods, without an arm."""
    return [
        Cell(
            panel=point.panel,
            arm="",
            policy=PLACEHOLDER,
            workload=options.workload("agentx", gap_s_max=10.0),
            seed=0,
            sessions=options.sessions(1_000),
            engine=CODER,
            num_backends=PODS,
            pressure=point.pressure,
            end_s=3_600.0,
            has_fixed_end=True,
            warm_s=600.0,
            x=point.pressure,
        )
        for point in CLIFF
    ]


def _cells(options: StudyOptions) -> list[Cell]:
    four = cliff_cells(options)
    one = replace(four[4], panel=ONE_POD, num_backends=1, sessions=options.sessions(250))
    return [
        *cross(options, four, arms(OURS, ALONE, PLAIN, "thunderagent", "thunderagent-decay")),
        *cross(options, [one], arms(OURS, ALONE, "thunderagent", "thunderagent-decay")),
    ]


_ROUTERS: Final = "a cost router moves sessions that could have stayed; theirs is another router"
_DEEP: Final = "nobody's cache lives until it is asked for again, here and there"


def _plain_why(point: Point) -> str:
    if point.pressure < SATURATED:
        return _ROUTERS
    return _DEEP


def _thunder_why(point: Point) -> str:
    if point.pressure < 0.6:
        return "all contexts fit, and no session is paused or moved"
    if point.pressure < SATURATED:
        return (
            "no session moves here, so that the hits hold until the pools are full; of theirs about"
            " 70 % of the resumed ones moved; why they lose hits below the pools is open"
        )
    return "open: without decay the port keeps more than theirs, with decay less"


def _ttft_why(point: Point) -> str:
    if point.pressure < SATURATED:
        return "follows from the hits: what is missed is computed before the first token"
    return (
        "the working set that was measured is smaller than the nominal one, and turns of the first "
        "ten minutes count here; the rest is open"
    )


_RATE_WHY: Final = (
    "the step law computes a 50,000-token prompt at the published rate; prompts here are longer, "
    "65,000 tokens on the average, and attention grows with them; whether theirs are is open"
)


def _claims() -> list[Claim]:
    found: list[Claim] = []
    for point in CLIFF:
        at = f"{point.pressure:g}"
        found += [
            Claim(f"{at}: working set / pools", at, point.panel, PLAIN, (), WORKING_SET,
                  "named by workers x mean context; measured are the sessions that were alive"),
            Claim(f"{at}: hit rate without control", f"{point.plain:.3f}", point.panel, PLAIN, (),
                  HIT_LOADED, _plain_why(point)),
            Claim(f"{at}: hit rate under ThunderAgent (here: with decay)", f"{point.thunder:.3f}",
                  point.panel, "thunderagent-decay", (), HIT_LOADED, _thunder_why(point)),
            Claim(f"{at}: TTFT p50 s without control", f"{point.ttft_p50_s:g}", point.panel, PLAIN,
                  (), TTFT_P50, _ttft_why(point)),
        ]  # fmt: skip
        if point.pressure > SATURATED:
            found.append(
                Claim(f"{at}: total tok/s without control", "87,000-94,000", point.panel, PLAIN,
                      (), TOTAL_TOKENS, _RATE_WHY)
            )  # fmt: skip
    return found + _one_pod_claims()


def _one_pod_claims() -> list[Claim]:
    """Published without the working set, so that the panel's is a choice."""
    why = "open: at which working set theirs was measured is not public"
    rate_why = f"the saturated rate is lower here, as on {PODS} pods: read the ratio below"
    rows = (
        ("hit rate without control", "0.008", ALONE, (), HIT_LOADED),
        ("hit rate under ThunderAgent", "0.685", "thunderagent", (), HIT_LOADED),
        ("output tok/s without control", "221", ALONE, (), TOKENS),
        ("output tok/s, ThunderAgent over none", "2.1x", "thunderagent", (ALONE,), TOKENS),
        ("TTFT p50 s without control", "52.5", ALONE, (), TTFT_P50),
        ("TTFT p50 s under ThunderAgent", "3.0", "thunderagent", (), TTFT_P50),
        ("TTFT p99 s without control", "119", ALONE, (), TTFT_P99),
        ("TTFT p99 s under ThunderAgent", "223", "thunderagent", (), TTFT_P99),
    )
    return [
        Claim(f"1 pod: {what}", there, ONE_POD, arm, rivals, column,
              why if rivals or column is not TOKENS else rate_why)
        for what, there, arm, rivals, column in rows
    ]  # fmt: skip


STUDIES: Final = (
    Study(
        name="cliff",
        title="The hit-rate cliff beside published measurements",
        asks="One hour on the Weka corpus, pauses cut to 10 s, Qwen3-Coder-30B-A3B on two H100s: "
        "where do the hits fall, and what is left of them under ThunderAgent?",
        make_cells=_cells,
        columns=(WORKING_SET, HIT_LOADED, TOKENS, TOTAL_TOKENS, TTFT_P50, TTFT_P99),
        versus=(HIT_LOADED, TOKENS, TTFT_P50),
        claims=tuple(_claims()),
        plots=(Plot("hit-rate", "lines", "hit_rate_loaded", "Hit rate", "hits / prompt tokens",
                    (f"{PODS} pods,",), x_title="working set / pools (nominal)"),),
        reading="Published: four pods of two H100s behind a gateway, and one pod, vLLM 0.28, 45-60 "
        "minutes; here four backends, and one. The x of a panel is nominal: workers x mean context "
        "over the pools. The first column is what it was in the run, which is less where sessions "
        "wait so long that their contexts stay short. Rates are from the tenth minute on, waits of "
        "all turns. `dynamo-cost` stands for the gateway: it scores backends by cache and load, "
        "and moves sessions; where none moves (`sticky-least-loaded`) the cliff sits further "
        "right.",
    ),
)  # fmt: skip
