"""Every study by name, in the order of `tao study list`."""

from typing import Final

from tao_coordinator.study.studies import (
    cliff,
    concur,
    credit,
    decision,
    inferencex,
    pressure,
    readiness,
    robustness,
    scale,
    tao_paper,
    tao_parts,
    tiers,
)
from tao_coordinator.study.study import Study

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        *pressure.STUDIES,
        *tao_paper.STUDIES,
        *tao_parts.STUDIES,
        *readiness.STUDIES,
        *credit.STUDIES,
        *decision.STUDIES,
        *inferencex.STUDIES,
        *tiers.STUDIES,
        *concur.STUDIES,
        *cliff.STUDIES,
        *robustness.STUDIES,
        *scale.STUDIES,
    )
}
