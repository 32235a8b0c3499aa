"""The backends as the relay knows them: options by id, and which to take when the engine fails."""

import contextlib
import itertools
from collections.abc import Mapping

from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendUnreachable
from tao_coordinator.errors import EngineError
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.runtime import Runtime


class Fleet:
    """Reads the operator's settings; tells the engine what it met."""

    def __init__(
        self,
        runtime: Runtime,
        backends: Mapping[str, BackendConfig],
        metrics: ServiceMetrics,
    ) -> None:
        """Look into `backends` at each call, so that additions and removals count at once."""
        self.metrics = metrics
        self._runtime = runtime
        self._backends = backends
        self._num_fallbacks = itertools.count()

    def get(self, backend_id: str) -> BackendConfig | None:
        """Its settings; `None`: it has none."""
        return self._backends.get(backend_id)

    def all(self) -> list[BackendConfig]:
        """Every backend, healthy or not."""
        return list(self._backends.values())

    def any(self) -> BackendConfig | None:
        """The next in turn, for calls that nobody decides about; `None`: there is none."""
        backends = self.all()
        return backends[next(self._num_fallbacks) % len(backends)] if backends else None

    def tell_failure(self, backend_id: str, reason: str) -> None:
        """A call met a backend that does not answer: as much evidence as a failed poll."""
        self.metrics.relay_failures.labels(backend_id).inc()
        with contextlib.suppress(EngineError):
            self._runtime.dispatch((BackendUnreachable(backend_id=backend_id, reason=reason),))
