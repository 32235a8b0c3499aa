"""The backends of this process: who is in, where each came from, one poller per backend.

Backends are given by flags, a watched file, DNS or the admin API. Each of these *sources* may add,
change and withdraw its own; what a source withdraws, or an operator deletes, drains: no new turn
goes there, and it is forgotten once nothing runs on it any more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx2

from tao_coordinator.adapters import gateways
from tao_coordinator.config import BackendConfig
from tao_coordinator.core.effects import BackendLeft, Effect
from tao_coordinator.core.events import BackendAdded, BackendDrained, BackendRemoved, Event
from tao_coordinator.errors import ConfigurationError, EngineError
from tao_coordinator.service import kv_listener
from tao_coordinator.service.poller import BackendPoller, Pace
from tao_coordinator.service.probe import Probe

if TYPE_CHECKING:
    import zmq.asyncio

_log = logging.getLogger(__name__)

BACKENDS_MAX: Final = 4_096
LEAVE_INTERVAL_S: Final = 0.5
"""Between two looks at whether a draining backend is empty."""

ADMIN: Final = "admin API"


@dataclass(slots=True)
class Entry:
    """One backend of this process."""

    config: BackendConfig
    source: str
    poller: BackendPoller
    polling: asyncio.Task[None]
    listening: asyncio.Task[None] | None = None
    """To its KV events."""
    leaving: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask it nothing any more."""
        self.polling.cancel()
        if self.listening is not None:
            self.listening.cancel()


class Roster:
    """Adds, changes, drains and forgets backends. Every method runs on the event loop's thread."""

    def __init__(self, dispatch: Callable[[Sequence[Event]], Sequence[Effect]]) -> None:
        self._dispatch = dispatch
        self._client: httpx2.AsyncClient | None = None
        self._group: asyncio.TaskGroup | None = None
        self._zmq: zmq.asyncio.Context | None = None
        self._pace = Pace()
        self._entries: dict[str, Entry] = {}
        self.configs: dict[str, BackendConfig] = {}
        """By backend id, always as of now; to be read only."""
        self._given: dict[str, dict[str, BackendConfig]] = {}
        """By source: what it said last, whether or not that could be followed."""

    def open(self, client: httpx2.AsyncClient, group: asyncio.TaskGroup) -> None:
        """Poll with `client`, in tasks of `group`. Before anything is added."""
        self._client, self._group = client, group

    @property
    def entries(self) -> Mapping[str, Entry]:
        """By backend id, draining ones included."""
        return self._entries

    def add(self, config: BackendConfig, source: str) -> None:
        """Take a backend in, or give a known one new settings; ends its draining.

        Raises:
            ConfigurationError: Its gateway cannot be told so, another backend is the same engine,
                or there are too many.
            EngineError: The engine failed to take it in.
        """
        client, group = self._client, self._group
        if client is None or group is None:
            raise ConfigurationError("the coordinator is not ready for backends yet")
        affinity = gateways.affinity_of(config)
        known = self._entries.get(config.backend_id)
        if known is None and len(self._entries) >= BACKENDS_MAX:
            raise ConfigurationError(f"there are {BACKENDS_MAX} backends already")
        self._refuse_twin(config)
        if config.kv_events_url is not None and self._zmq is None:
            self._zmq = kv_listener.new_context()
        self._dispatch(
            [
                BackendAdded(
                    backend_id=config.backend_id,
                    base_url=config.base_url,
                    capacity_tokens=config.capacity_tokens,
                    capacity_scale=config.capacity_scale,
                    host_tier_tokens=config.host_tier_tokens,
                    host_reload_tokens_per_s=config.host_reload_tokens_per_s,
                    affinity_headers=affinity.headers,
                    served_by=affinity.served_by,
                )
            ]
        )
        if known is not None:
            if known.leaving is not None:
                known.leaving.cancel()
            known.stop()
        poller = BackendPoller(config, Probe(config, client), self._pace, self._dispatch)
        polling = group.create_task(poller.run(), name=f"poll {config.backend_id}")
        entry = self._entries[config.backend_id] = Entry(config, source, poller, polling)
        if config.kv_events_url is not None and self._zmq is not None:
            listener = kv_listener.KvListener(config, self._dispatch)
            entry.listening = group.create_task(
                listener.run(self._zmq), name=f"KV events of {config.backend_id}"
            )
        self.configs[config.backend_id] = config
        self._pace.num_backends = len(self._entries)
        if known is None or known.leaving is not None or known.config != config:
            word = "changed" if known is not None else "added"
            _log.info("backend %s %s by %s: %s", config.backend_id, word, source, config.base_url)

    def drain(self, backend_id: str, source: str) -> bool:
        """Send no new turn there and forget it once it is empty; false when there is none such.

        Raises:
            EngineError: The engine failed to take it in.
        """
        entry, group = self._entries.get(backend_id), self._group
        if entry is None:
            return False
        if entry.leaving is None and group is not None:
            self._dispatch([BackendDrained(backend_id=backend_id)])
            entry.leaving = group.create_task(self._leave(backend_id), name=f"drain {backend_id}")
            _log.info("backend %s drains by %s", backend_id, source)
            if all(other.leaving for other in self._entries.values()):
                _log.warning("no backend is left: new turns are refused until one is added")
        return True

    def sync(self, source: str, configs: Iterable[BackendConfig]) -> None:
        """Follow what a source says now: only what it changed since it spoke last.

        So a backend that an operator deleted by hand stays away until the source changes it.
        """
        wanted = {config.backend_id: config for config in configs}
        before = self._given.get(source, {})
        self._given[source] = wanted
        for backend_id, config in wanted.items():
            if before.get(backend_id) == config:
                continue
            entry = self._entries.get(backend_id)
            if entry is not None and entry.source != source and entry.leaving is None:
                _log.warning(
                    "backend %s of %s is ignored: the id is taken by %s",
                    backend_id,
                    source,
                    entry.source,
                )
                continue
            try:
                self.add(config, source)
            except (ConfigurationError, EngineError) as error:
                _log.warning("backend %s of %s is ignored: %s", backend_id, source, error)
        for backend_id in before.keys() - wanted.keys():
            entry = self._entries.get(backend_id)
            if entry is not None and entry.source == source:
                self.drain(backend_id, source)

    async def settle(self) -> None:
        """Wait until every backend was asked once."""
        for entry in list(self._entries.values()):
            await entry.poller.asked.wait()

    def close(self) -> None:
        """Stop asking."""
        for entry in self._entries.values():
            entry.stop()
            if entry.leaving is not None:
                entry.leaving.cancel()

    def _refuse_twin(self, config: BackendConfig) -> None:
        """Two names for one engine would promise its room twice."""
        for entry in self._entries.values():
            other = entry.config
            if other.backend_id == config.backend_id or entry.leaving is not None:
                continue
            if other.engine == config.engine:
                raise ConfigurationError(f"{config.base_url} is backend {other.backend_id} already")

    async def _leave(self, backend_id: str) -> None:
        """Until nothing runs there: turns end by themselves, lost leases expire."""
        while True:
            if self._has_left(backend_id):
                break
            await asyncio.sleep(LEAVE_INTERVAL_S)
        entry = self._entries.pop(backend_id)
        del self.configs[backend_id]
        entry.stop()
        self._pace.num_backends = len(self._entries)
        _log.info("backend %s is drained and forgotten", backend_id)

    def _has_left(self, backend_id: str) -> bool:
        try:
            effects = self._dispatch([BackendRemoved(backend_id=backend_id)])
        except EngineError:
            return False  # logged where it happened; asked again
        gone = BackendLeft(backend_id=backend_id)
        return any(effect == gone for effect in effects)
