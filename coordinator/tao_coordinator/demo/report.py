"""The demo's table, and one honest sentence under it."""

from tao_coordinator.demo.measure import PolicyResult

NOISE = 0.05
"""Differences below this share are called none: two runs of one arm differ by about that much."""

_COLUMNS: list[tuple[str, str, str]] = [
    # heading, field, format
    ("policy", "policy", "s"),
    ("task mean s", "task_s_mean", ".0f"),
    ("task max s", "task_s_max", ".0f"),
    ("TTFT mean s", "ttft_s_mean", ".2f"),
    ("TTFT p99 s", "ttft_s_p99", ".1f"),
    ("hit rate", "hit_rate", ".3f"),
    ("output tok/s", "output_tokens_per_s", ".0f"),
    ("longest hold s", "hold_s_max", ".0f"),
    ("of a started one", "hold_started_s_max", ".0f"),
]


def table(results: list[PolicyResult]) -> str:
    """One line per policy, columns aligned."""
    rows = [[heading for heading, _, _ in _COLUMNS]]
    rows += [[format(getattr(r, name), form) for _, name, form in _COLUMNS] for r in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def verdict(results: list[PolicyResult], policy: str = "tao") -> str:
    """What the run shows about `policy` beside the best of the others, good or bad."""
    ours = next((r for r in results if r.policy == policy), None)
    others = [r for r in results if r.policy != policy]
    if ours is None or not others:
        return "Nothing to compare with: run at least two policies, one of them tao."
    best = min(others, key=lambda r: r.task_s_mean)
    # The rival lets every session in, so its arm shows what the fleet wants.
    pressure = f"working set of {best.pressure_mean:.1f} x the KV pool on average"
    change = ours.task_s_mean / best.task_s_mean - 1.0
    if abs(change) < NOISE:
        return (
            f"No gain here: with a {pressure}, mean task time under {policy} is within "
            f"{NOISE:.0%} of {best.policy}."
        )
    word = "shorter" if change < 0 else "LONGER"
    return (
        f"With a {pressure}, mean task time under {policy} is {abs(change):.0%} {word} than under "
        f"{best.policy}, the best of the others (cache hit rate {ours.hit_rate:.2f} against "
        f"{best.hit_rate:.2f}); the price is waiting: new sessions up to {ours.hold_s_max:.0f} s "
        f"in line, started ones up to {ours.hold_started_s_max:.0f} s."
    )
