"""The default policy, one question per module.

`policy` puts them together; `room` is what is left while one decision is made; `started` places
held started sessions jointly, within the step or `aside`; `bounds` forces in those that waited too
long; `arrivals` admits new sessions in order; `release` gives up idle seats by price.
"""

from tao_coordinator.scheduling.tao.policy import Tao as Tao
from tao_coordinator.scheduling.tao.started import LOOP_PAIRS_MAX as LOOP_PAIRS_MAX
