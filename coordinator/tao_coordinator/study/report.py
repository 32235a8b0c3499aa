"""A study's outcome as Markdown and as JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tao_coordinator.study.statistics import Interval, mean_interval
from tao_coordinator.study.study import OURS, Claim, Column, Outcome

SEEDS_FOR_INTERVAL: Final = 2
SEEDS_FOR_RANGE: Final = 3
"""With so few, more than a fortieth of all resamples is the smallest value alone."""


def markdown(outcome: Outcome, command: str, pictures: Sequence[str] = ()) -> str:
    """The whole report.

    Args:
        outcome: cells and results.
        command: the command line that repeats it.
        pictures: file names of plots beside the report.
    """
    study = outcome.study
    lines = [f"# {study.title}", "", study.asks, ""]
    seeds = ", ".join(str(seed) for seed in outcome.options.seeds)
    lines += [f"`{command}`", "", f"Seeds {seeds}. Modelled engines: read ratios.", ""]
    if len(outcome.options.seeds) >= SEEDS_FOR_INTERVAL:
        lines += [_intervals(len(outcome.options.seeds)), ""]
    if outcome.num_failed:
        lines += [f"**Incomplete: {outcome.num_failed} runs have failed and are missing.**", ""]
    if study.reading:
        lines += [study.reading, ""]
    lines += _claims(outcome)
    for panel in outcome.panels():
        lines += [f"## {panel}", "", *_panel(outcome, panel), ""]
    lines += [f"![{name}]({name})" for name in pictures]
    return "\n".join(lines).rstrip() + "\n"


def as_json(outcome: Outcome, command: str) -> dict[str, object]:
    """The same as plain values: every measure of every cell, and the comparisons."""
    panels: dict[str, object] = {}
    for panel in outcome.panels():
        arms = outcome.arms(panel)
        panels[panel] = {
            "arms": {
                arm: {
                    "seeds": {
                        str(cell.seed): _plain(result.measures)
                        for cell, result in outcome.of(panel, arm)
                    },
                    "means": {
                        column.measure: _interval(outcome.interval(panel, arm, column))
                        for column in outcome.study.columns
                    },
                }
                for arm in arms
            },
            "versus": {
                column.measure: {
                    arm: _interval(outcome.ratio(panel, OURS, arm, column))
                    for arm in arms
                    if arm != OURS and OURS in arms
                }
                for column in outcome.study.versus
            },
        }
    return {
        "study": outcome.study.name,
        "command": command,
        "seeds": list(outcome.options.seeds),
        "failed_runs": outcome.num_failed,
        "claims": [_claim_facts(found) for found in _found(outcome)],
        "panels": panels,
    }


def _intervals(num_seeds: int) -> str:
    """What the brackets mean: a bootstrap of two or three values is their range."""
    by_seed = "95 %, bootstrap over the seeds"
    if num_seeds <= SEEDS_FOR_RANGE:
        by_seed = "the range of the seeds"
    return (
        "In brackets: for the mean task latency 95 %, bootstrap over the sessions of all seeds, "
        f"which wait for each other, so that it is rather too narrow; for the rest {by_seed}."
    )


def _panel(outcome: Outcome, panel: str) -> list[str]:
    columns, arms = outcome.study.columns, outcome.arms(panel)
    shown = [c for c in columns if any(outcome.values(panel, a, c.measure) for a in arms)]
    rows = [["policy", *(column.title for column in shown)]]
    cell, first = outcome.of(panel, arms[0])[0]
    for arm in arms:
        name = f"**{arm}**" if arm == OURS else arm
        left = sum(r.measures.get("unfinished", 0.0) for _, r in outcome.of(panel, arm))
        if left and not cell.is_cut:
            name += f" ({left:.0f} sessions not finished)"
        rows.append([name, *(_cell(outcome, panel, arm, column) for column in shown)])
    workers = first.measures.get("workers", 0.0)
    facts = f"{first.measures.get('sessions', 0.0):.0f} sessions a seed"
    if cell.is_cut:
        # More were served: those that had not ended when the run was cut.
        ended = mean_interval(list(outcome.values(panel, arms[0], "sessions").values())).value
        facts = f"{ended:.0f} ended a seed under {arms[0]}"
    facts += f", {workers:.0f} workers." if workers else ", open loop."
    return [facts, "", *table(rows), "", *_versus(outcome, panel)]


def _cell(outcome: Outcome, panel: str, arm: str, column: Column) -> str:
    found = outcome.interval(panel, arm, column)
    text = number(found.value, column.digits)
    many = len(outcome.values(panel, arm, column.measure)) >= SEEDS_FOR_INTERVAL
    if many and column in outcome.study.versus and not math.isnan(found.low):
        text += f" [{number(found.low, column.digits)}, {number(found.high, column.digits)}]"
    return text


def _versus(outcome: Outcome, panel: str) -> list[str]:
    others = outcome.rivals(panel)
    if OURS not in outcome.arms(panel) or not others:
        return []
    parts: list[str] = []
    for column in outcome.study.versus:
        best = outcome.best(panel, others, column)
        if best is None:
            continue
        ratio = outcome.ratio(panel, OURS, best, column)
        parts.append(f"{column.title} {percent(ratio)} against {best}")
    return [f"`{OURS}` against the best other in each: " + "; ".join(parts) + "."] if parts else []


@dataclass(frozen=True, slots=True)
class _Found:
    """A claim and what it becomes here; NaN where nobody finished."""

    claim: Claim
    here: Interval
    rival: str | None
    """`None`: `here` is a value in the column's unit, else a ratio."""

    @property
    def shown(self) -> float:
        """As printed: percent of change, or the value."""
        if self.claim.rivals:
            return round(100.0 * (self.here.value - 1.0), 1)
        return round(self.here.value, self.claim.column.digits)

    @property
    def is_met(self) -> bool | None:
        """Whether the floor is kept, by what is printed; `None`: there is no floor."""
        floor = self.claim.floor
        if floor is None:
            return None
        return self.shown >= floor if self.claim.column.higher_is_better else self.shown <= floor

    @property
    def text(self) -> str:
        """For the table."""
        if self.claim.rivals:
            return f"{percent(self.here)} ({self.rival})" if self.rival else "no rival finished"
        value = number(self.here.value, self.claim.column.digits)
        return f"{value} %" if self.claim.column.title.endswith("%") else value


def _found(outcome: Outcome) -> list[_Found]:
    panels = outcome.panels()
    return [
        _find(outcome, claim)
        for claim in outcome.study.claims
        if claim.panel in panels and claim.arm in outcome.arms(claim.panel)
    ]


def _find(outcome: Outcome, claim: Claim) -> _Found:
    panel, column = claim.panel, claim.column
    if not claim.rivals:
        here = outcome.interval(panel, claim.arm, column)
        if column.measure.endswith("_max"):
            # The longest of all, which a mean over seeds would hide, and the interval of one too.
            worst = max(outcome.values(panel, claim.arm, column.measure).values(), default=math.nan)
            here = Interval(worst * column.scale, math.nan, math.nan)
        return _Found(claim, here, None)
    present = [rival for rival in claim.rivals if rival in outcome.arms(panel)]
    best = outcome.best(panel, present, column)
    if best is None:
        return _Found(claim, Interval(math.nan, math.nan, math.nan), None)
    return _Found(claim, outcome.ratio(panel, claim.arm, best, column), best)


def _claims(outcome: Outcome) -> list[str]:
    found = _found(outcome)
    if not found:
        return []
    verdicts = [one.is_met for one in found if one.is_met is not None]
    told = {None: "", True: "met", False: "**NOT met**"}
    rows = [[*outcome.study.heads, "here", *(["met?"] if verdicts else []), "why they differ"]]
    for one in found:
        verdict = [told[one.is_met]] if verdicts else []
        rows.append([one.claim.what, one.claim.published, one.text, *verdict, one.claim.why])
    lines = [f"## Beside {outcome.study.beside}", "", *table(rows), ""]
    if verdicts:
        lines += [f"{sum(verdicts)} of {len(verdicts)} floors are met.", ""]
    return lines


def _claim_facts(found: _Found) -> dict[str, object]:
    claim = found.claim
    return {
        "what": claim.what,
        "published": claim.published,
        "panel": claim.panel,
        "arm": claim.arm,
        "rival": found.rival,
        "measure": claim.column.measure,
        "is_ratio": bool(claim.rivals),
        "here": _interval(found.here),
        "floor": claim.floor,
        "is_met": found.is_met,
        "why": claim.why,
    }


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; the first row is its head."""
    head, *body = rows
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in body),
    ]


def number(value: float, digits: int) -> str:
    """A number as a person reads it; empty where there is none."""
    if math.isnan(value):
        return ""
    return f"{value:,.{digits}f}"


def percent(ratio: Interval) -> str:
    """A ratio as a signed change, with its interval."""
    if math.isnan(ratio.value):
        return "-"
    value, low, high = (100.0 * (part - 1.0) for part in (ratio.value, ratio.low, ratio.high))
    if math.isnan(low):
        return f"{value:+.1f} %"
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _interval(found: Interval) -> dict[str, float | None]:
    return _plain(asdict(found))


def _plain(values: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in values.items()}
