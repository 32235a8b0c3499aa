"""The report of a replay: one HTML page that needs nothing but itself."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from tao_coordinator.replay import charts
from tao_coordinator.replay.findings import PHASES, QUANTILES, ArmFindings, Findings
from tao_coordinator.simulation.run_record import Moment
from tao_coordinator.study.report import percent
from tao_coordinator.study.study import (
    GOOD_5,
    HIT_RATE,
    HOLD_STARTED,
    OURS,
    TASK_P99,
    TOKENS_RUN,
    TTFT,
    TTFT_P50,
    TTFT_P99,
    Column,
)

COLUMNS: Final = (TASK_P99, TTFT, TTFT_P50, TTFT_P99, TOKENS_RUN, HIT_RATE, HOLD_STARTED, GOOD_5)
POINTS_MAX: Final = 80
"""Of a curve over time."""
HELP: Final = {
    TASK_P99.measure: "99 of 100 tasks took no longer",
    TTFT.measure: "from the tool's end to the first token, holds and queues included",
    HIT_RATE.measure: "share of prompt tokens that were cached",
    HOLD_STARTED.measure: "longest wait of a session that had begun, before its call was let go",
    TOKENS_RUN.measure: "tokens that the fleet put out, from the first start to the last end, "
    "over that time",
}
_STYLE: Final = """
:root{--ink:#1c2430;--soft:#5c6878;--line:#dfe4ea;--back:#fff;--panel:#f6f8fa;--ours:#d6293e}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebef;--soft:#9aa5b4;--line:#333c48;
--back:#14181e;--panel:#1c222a;--ours:#ff5f72}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:1040px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:38px 0 6px}
p{margin:6px 0 12px;max-width:72ch}.soft{color:var(--soft)}
.verdict{background:var(--panel);border-left:4px solid var(--ours);padding:12px 16px;
margin:18px 0;border-radius:0 6px 6px 0}.verdict p{margin:4px 0}
.verdict p,.warning p{max-width:100ch}
.warning{background:var(--panel);border-left:4px solid #ccbb44;padding:8px 16px;margin:18px 0;
border-radius:0 6px 6px 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:16px 0}
.facts div{background:var(--panel);border-radius:6px;padding:8px 12px}
.facts b{display:block;font-size:18px}.facts span{color:var(--soft);font-size:13px}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 8px;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft);font-size:13px;white-space:normal;vertical-align:bottom}
th:first-child,td:first-child{text-align:left}tr.ours td{font-weight:600}
td.best{color:var(--ours)}td small{color:var(--soft);font-weight:400;display:block}
svg{width:100%;height:auto;display:block;margin:4px 0 8px}
svg.narrow-only{display:none}
@media(max-width:560px){svg.wide-only{display:none}svg.narrow-only{display:block}
main{padding:20px 14px 40px}table{font-size:13px}
th:first-child,td:first-child{position:sticky;left:0;background:var(--back)}}
@media print{svg.wide-only{display:block}svg.narrow-only{display:none}}
svg text{fill:var(--ink);font-size:13px}svg text.small{fill:var(--soft);font-size:12px}
.grid{stroke:var(--line)}.legend{margin-top:10px;font-size:13px}
.legend b{margin-right:16px;font-weight:600}.key{margin-right:14px;white-space:nowrap}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;
vertical-align:-1px}.key i.line{height:3px;width:18px;vertical-align:4px}
.part-tools{fill:#b8c0ca;background:#b8c0ca}.part-decode{fill:#4477aa;background:#4477aa}
.part-prefill{fill:#66ccee;background:#66ccee}.part-again{fill:#ee6677;background:#ee6677}
.part-queue{fill:#ccbb44;background:#ccbb44}.part-hold{fill:#aa3377;background:#aa3377}
.curve{fill:none;stroke-width:1.8}.curve-0{stroke:var(--ours);background:var(--ours)}
polyline.curve-0{stroke-width:3}.curve-1{stroke:#4477aa;background:#4477aa}
.curve-2{stroke:#228833;background:#228833}.curve-3{stroke:#ccbb44;background:#ccbb44}
.curve-4{stroke:#aa3377;background:#aa3377}.curve-5{stroke:#66ccee;background:#66ccee}
.curve-6{stroke:#999;background:#999}.curve-7{stroke:#882255;background:#882255}
.mark{fill:var(--back);stroke-width:2}code{background:var(--panel);padding:2px 5px;
border-radius:4px;font-size:13px;overflow-wrap:anywhere}li{margin:3px 0;max-width:72ch}
"""


def html(findings: Findings, command: str) -> str:
    """The whole page.

    Args:
        findings: what is shown; the default policy comes first wherever it takes part.
        command: the command line that repeats the replay.
    """
    arms = sorted(findings.arms, key=lambda arm: arm.arm != OURS)
    sections = [
        _head(findings),
        "<h2>What each policy would have given</h2>",
        "<p class=soft>Best of each column in colour. In small print: task latency against tao, "
        "with a 95 % interval from paired sessions.</p>",
        _table(arms),
        _as_recorded(findings),
        "<h2>Where the time went</h2>",
        "<p class=soft>Seconds per session. <i>Prefill again</i> is work that had been done "
        "before and was lost with the cache.</p>",
        charts.stacked_bars(
            [(arm.arm, arm.phases_s) for arm in arms],
            [(key, words) for key, _, words in PHASES],
            "s",
        ),
        _phases_table(arms),
        *_fleets(findings, arms),
        *_curves(arms),
        _footer(findings, command),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>tao replay</title><style>{_STYLE}</style></head><body><main>"
        + "".join(sections)
        + "</main></body></html>\n"
    )


def _head(findings: Findings) -> str:
    plan = findings.plan
    settings = plan.settings
    name = settings.trace.rsplit("/", 1)[-1]
    measures = findings.arms[0].measures
    facts = (
        (f"{measures.get('sessions', 0.0):,.0f}", "sessions"),
        (f"{measures.get('turns', 0.0):,.0f}", "model calls"),
        (f"{settings.num_backends} x", settings.engine.name),
        (f"{plan.workers or 'as recorded'}", "sessions at a time" if plan.workers else "arrivals"),
        *_working_set(findings),
    )
    boxes = "".join(f"<div><b>{escape(v)}</b><span>{escape(k)}</span></div>" for v, k in facts)
    verdict = "".join(f"<p>{escape(sentence)}</p>" for sentence in findings.sentences)
    box = f"<div class=verdict>{verdict}</div>" if verdict else ""
    box += "".join(f"<div class=warning><p>{escape(text)}</p></div>" for text in findings.warnings)
    return (
        f"<h1>Replay of {escape(name)}</h1><p class=soft>The recorded sessions, run again on "
        f"modelled engines under each policy.</p>{box}<div class=facts>{boxes}</div>"
    )


def _working_set(findings: Findings) -> list[tuple[str, str]]:
    """The load as it was asked for, and as it came out."""
    boxes: list[tuple[str, str]] = []
    if findings.plan.workers:
        words = "working set / KV pools, asked for: workers x mean context"
        boxes.append((f"{findings.plan.pressure:.2f}", words))
    measured = findings.working_set()
    if measured is not None:
        words = f"working set / KV pools, measured under {measured[0]}: mean of live contexts"
        boxes.append((f"{measured[1]:.2f}", words))
    return boxes


def _table(arms: Sequence[ArmFindings]) -> str:
    shown = [c for c in COLUMNS if any(c.measure in arm.measures for arm in arms)]
    titles = "".join(
        f'<th title="{escape(HELP.get(c.measure, ""))}">{escape(c.title)}</th>' for c in shown
    )
    best_task = min(arm.task_s.value for arm in arms)
    body: list[str] = []
    for arm in arms:
        against = ""
        if arm.against is not None:
            against = f"<small>{percent(arm.against)}</small>"
        kind = " class=best" if arm.task_s.value == best_task else ""
        cells = "".join(_cell(arm, column, arms) for column in shown)
        row = " class=ours" if arm.arm == OURS else ""
        body.append(
            f"<tr{row}><td>{escape(arm.arm)}{_notes(arm)}</td>"
            f"<td{kind}>{arm.task_s.value:,.0f}{against}</td>{cells}</tr>"
        )
    return (
        "<div class=wide><table><thead><tr><th>policy</th><th>task mean s</th>"
        f"{titles}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _as_recorded(findings: Findings) -> str:
    recorded = findings.plan.as_recorded
    if recorded is None:
        return ""
    return (
        f"<p class=soft>{escape(recorded.sentence())} Where that is far from the row of what ran "
        "then, the modelled fleet is not the one that was recorded.</p>"
    )


def _phases_table(arms: Sequence[ArmFindings]) -> str:
    """The numbers of the bars: hovering is not for every screen."""
    titles = "".join(f"<th>{escape(words)}, s</th>" for _, _, words in PHASES)
    body = "".join(
        f"<tr{' class=ours' if arm.arm == OURS else ''}><td>{escape(arm.arm)}</td>"
        + "".join(f"<td>{arm.phases_s[key]:,.1f}</td>" for key, _, _ in PHASES)
        + "</tr>"
        for arm in arms
    )
    return (
        f"<div class=wide><table><thead><tr><th>policy</th>{titles}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _notes(arm: ArmFindings) -> str:
    """What makes a row not comparable."""
    notes = [
        f"{arm.measures[key]:,.0f} {words}"
        for key, words in (
            ("unfinished", "sessions not finished"),
            ("failed", "sessions failed"),
            ("refused", "turns told to come again"),
        )
        if arm.measures.get(key, 0.0) > 0
    ]
    return f"<small>{escape(', '.join(notes))}</small>" if notes else ""


def _cell(arm: ArmFindings, column: Column, arms: Sequence[ArmFindings]) -> str:
    value = arm.measures.get(column.measure, math.nan)
    if math.isnan(value):
        return "<td></td>"
    kind = ""
    if column.higher_is_better is not None:
        values = [other.measures.get(column.measure, math.nan) for other in arms]
        known = [v for v in values if not math.isnan(v)]
        if value == (max if column.higher_is_better else min)(known) and min(known) < max(known):
            kind = " class=best"
    return f"<td{kind}>{value * column.scale:,.{column.digits}f}</td>"


def _fleets(findings: Findings, arms: Sequence[ArmFindings]) -> list[str]:
    if len(arms[0].task_s_by_backends) < 2:
        return []
    curves = [
        (arm.arm, [(float(n), task_s) for n, task_s in arm.task_s_by_backends.items()])
        for arm in arms
    ]
    workers = findings.plan.workers
    same = f"The same {workers} sessions at a time" if workers else "The same arrivals"
    return [
        "<h2>With fewer backends</h2>",
        f"<p class=soft>{same}. Read across: where two curves are "
        "equally high, those fleets give the same latency.</p>",
        charts.lines(
            curves, x_title="backends", y_title="task latency, mean s", whole_x=True, marks=True
        ),
    ]


def _curves(arms: Sequence[ArmFindings]) -> list[str]:
    share = 100.0 / QUANTILES
    latencies = [
        (arm.arm, [(task_s, number * share) for number, task_s in enumerate(arm.quantiles_s)])
        for arm in arms
    ]
    found = [
        "<h2>Task latency of all sessions</h2>",
        charts.lines(latencies, x_title="task latency, s", y_title="sessions done by then, %"),
        "<h2>Over time</h2>",
    ]
    for name, words in (("running", "calls running in the engines"), ("held", "turns held")):
        index = Moment._fields.index(name)
        curves = [
            (arm.arm, _smooth([(moment[0] / 60.0, moment[index]) for moment in arm.timeline]))
            for arm in arms
        ]
        found.append(charts.lines(curves, x_title="minutes", y_title=words))
    return found


def _smooth(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means of neighbours: single moments jump too much to be read."""
    step = max(1, math.ceil(len(points) / POINTS_MAX))
    groups = [points[start : start + step] for start in range(0, len(points), step)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _footer(findings: Findings, command: str) -> str:
    settings = findings.plan.settings
    seeds = ", ".join(str(seed) for seed in settings.seeds)
    workers = findings.plan.workers
    starts = "Sessions start when they were recorded to"
    if workers:
        starts = f"A session starts when an earlier one ends: {workers} at a time"
    return f"""<h2>How to read this</h2><ul>
<li>Prompt lengths, replies, tool calls and pauses (cut at {settings.gap_s_max:g} s) are the
recorded ones; when a turn begins follows from the modelled engine. Policies see a duration only
once it has passed.</li>
<li>Engines are modelled, so compare policies, not seconds with your machines:
{escape(settings.engine.provenance)}</li>
<li>{escape(starts)}, seeds {escape(seeds)}. Mean private context of a session:
{findings.plan.footprint_tokens:,.0f} tokens.</li>
<li>The working set is measured until the last session starts, or over half the run where all start
early. It is below what was asked for while contexts are young.</li>
<li>Throughput (tok/s) is that of the whole run, its beginning and its end included.</li>
<li>Repeat it: <code>{escape(command)}</code></li></ul>"""
