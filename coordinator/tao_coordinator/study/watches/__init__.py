"""What a study notes about decisions while a run goes on, by name.

`watch` says what a watch may look at; one module per question: `snapshots` (joint against greedy),
`readiness` (prediction errors, decisions it changed), `cost` (seconds per plan), `asynchrony` (the
terms of Eq. 12), `survival` (what is left of an idle session's cache).
"""

from collections.abc import Callable
from typing import Final

from tao_coordinator.study.watches.asynchrony import AsynchronyWatch
from tao_coordinator.study.watches.cost import CostWatch
from tao_coordinator.study.watches.readiness import ReadinessWatch
from tao_coordinator.study.watches.snapshots import SnapshotWatch
from tao_coordinator.study.watches.survival import SurvivalWatch
from tao_coordinator.study.watches.watch import Watch

WATCHES: Final[dict[str, Callable[[], Watch]]] = {
    "": Watch,
    "asynchrony": AsynchronyWatch,
    "cost": CostWatch,
    "readiness": ReadinessWatch,
    "snapshots": SnapshotWatch,
    "survival": SurvivalWatch,
}
"""What `Cell.watch` may say."""
