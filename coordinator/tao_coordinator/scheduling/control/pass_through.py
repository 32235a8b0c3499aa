"""The gate for traffic without reuse: where holding gains nothing, nobody is held.

Open when sessions mostly end after one reply, or when cached prefixes are not found again: then
there is no cache to protect and admission would only delay. Each reason has two thresholds, so that
the gate does not flap. Source: policy study, section 4 (without the gate such traffic lost 6-8 %
throughput) and section 5. Departure: the study's code closes the gate as soon as *one* of its two
closing thresholds is passed, its text when both are, at 0.9 for continuation; with the first there
is no hysteresis, with the second sessions of five to ten turns (p = 0.8-0.9), whose caches are well
worth protecting, would never be scheduled again after a burst of single calls. So each reason ends
by itself, continuation at 0.65 (three turns per session).
"""

OPEN_BELOW_CONTINUES = 0.5
CLOSE_ABOVE_CONTINUES = 0.65
OPEN_BELOW_QUALITY = 0.2
CLOSE_ABOVE_QUALITY = 0.4


def is_open(was_open: bool, p_continues: float, quality: float) -> bool:
    """Whether turns pass through without budget.

    Args:
        was_open: the gate's state so far.
        p_continues: probability that a session goes on after a reply, 0..1.
        quality: share of shallow predicted tokens that were found cached, 0..1.
    """
    if p_continues < OPEN_BELOW_CONTINUES or quality < OPEN_BELOW_QUALITY:
        return True
    stays = p_continues < CLOSE_ABOVE_CONTINUES or quality < CLOSE_ABOVE_QUALITY
    return was_open and stays
