"""The modelled engine in real time: one task moves it on and tells the replies that wait."""

import asyncio
import logging
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Final

from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.request import BackendSnapshot, SimOutput, SimRequest

_log = logging.getLogger(__name__)

RECORDS_MAX: Final = 20_000
"""Finished requests that `GET /sim/requests` can tell about."""
PROGRESS_EVERY_S: Final = 0.02
"""Real time between two looks at the tokens of an open stream."""


class EngineClock:
    """Maps real time to engine time, which runs `time_scale` times faster and starts at 0."""

    def __init__(self, time_scale: float) -> None:
        self.time_scale = time_scale
        self._start_s = time.monotonic()
        self._epoch_s = time.time()

    def now_s(self) -> float:
        """Return engine time."""
        return (time.monotonic() - self._start_s) * self.time_scale

    def epoch_s(self, engine_s: float) -> float:
        """Return the wall-clock time of a moment of engine time, in seconds since 1970."""
        return self._epoch_s + engine_s / self.time_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What became of one request. Times are real, in seconds since 1970."""

    sequence: int
    """Counts the finished requests of this process from 1."""
    request_id: str
    session_id: str | None
    received_at: float
    first_token_at: float | None
    """`None`: cancelled before its first token."""
    finished_at: float
    prompt_tokens: int
    cached_tokens: int | None
    """`None`: cancelled before its first token."""
    output_tokens: int
    """Tokens that were produced."""
    outcome: str
    """`completed` or `cancelled` (the client went away)."""

    def as_dict(self) -> dict[str, object]:
        """Return the fields by name."""
        return asdict(self)


class Generation:
    """One reply on its way. Only the driver changes it; its handler waits for changes."""

    def __init__(
        self,
        sim_request: SimRequest,
        request_id: str,
        session_id: str | None,
        finish_reason: str,
        received_s: float,
    ) -> None:
        self.sim_request = sim_request
        self.request_id = request_id
        self.session_id = session_id
        self.finish_reason = finish_reason
        self.received_s = received_s
        """Engine time."""
        self.produced_tokens = 0
        self.first_token_s: float | None = None
        self.cached_tokens: int | None = None
        self.finished = False
        self.failed = False
        """The backend stops or broke: no more tokens come."""
        self.streaming = False
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Return when tokens have come, the end has come, or the backend gives up."""
        await self._changed.wait()
        self._changed.clear()

    async def wait_for_end(self) -> None:
        """Return when the reply is complete or the backend gives up."""
        while not (self.finished or self.failed):
            await self.wait_for_change()

    def changed(self) -> None:
        """Wake the handler."""
        self._changed.set()


class BackendDriver:
    """Owns the model. Everything here runs on one event loop."""

    def __init__(self, model: BackendModel, clock: EngineClock) -> None:
        self._model = model
        self._clock = clock
        self._open: dict[str, Generation] = {}
        self._wake = asyncio.Event()
        self._stopped = False
        self._num_submitted = 0
        self._num_records = 0
        self._records: deque[FinishedRequest] = deque(maxlen=RECORDS_MAX)
        self.finish_reasons = {"stop": 0, "length": 0, "tool_calls": 0, "abort": 0}
        """Ended requests by reason, as vLLM counts them."""

    @property
    def model(self) -> BackendModel:
        """The engine; read only."""
        return self._model

    @property
    def stopped(self) -> bool:
        """Whether the backend takes no more requests."""
        return self._stopped

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def next_id(self) -> str:
        """Return an id that no request of this process had before."""
        self._num_submitted += 1
        return f"{self._num_submitted:08d}"

    def submit(
        self,
        sim_request: SimRequest,
        *,
        request_id: str,
        session_id: str | None,
        finish_reason: str,
    ) -> Generation:
        """Hand a request to the engine, now.

        Raises:
            RequestTooLargeError: It can never fit.
        """
        now_s = self._clock.now_s()
        self._model.submit(now_s, sim_request)
        generation = Generation(sim_request, request_id, session_id, finish_reason, now_s)
        self._open[sim_request.request_id] = generation
        self._wake.set()
        return generation

    def abort(self, generation: Generation) -> None:
        """Take a request back whose client has gone. Does nothing once it has ended."""
        model_id = generation.sim_request.request_id
        now_s = self._clock.now_s()
        if not self._stopped:
            self._move(now_s)
        if self._open.pop(model_id, None) is None or self._stopped:
            return
        generation.produced_tokens = self._model.produced_tokens(now_s, model_id) or 0
        self._model.abort(now_s, model_id)
        self.finish_reasons["abort"] += 1
        self._record(generation, now_s, "cancelled")
        self._wake.set()

    def snapshot(self) -> BackendSnapshot:
        """Return the engine's counts as of now."""
        now_s = self._clock.now_s()
        if not self._stopped:
            self._move(now_s)
        return self._model.snapshot(now_s)

    def records_since(self, sequence: int) -> list[FinishedRequest]:
        """Return the kept records of requests that ended after the one numbered `sequence`."""
        missing = self._num_records - sequence
        if missing <= 0:
            return []
        records = list(self._records)
        return records[-missing:] if missing < len(records) else records

    def stop(self) -> None:
        """Give up on all replies and take no more requests."""
        self._stopped = True
        for generation in self._open.values():
            generation.failed = True
            generation.changed()
        self._wake.set()

    async def run(self) -> None:
        """Move the engine on until `stop`."""
        try:
            while not self._stopped:
                self._wake.clear()
                await self._sleep(self._move(self._clock.now_s()))
        except Exception:  # noqa: BLE001 (logged; a broken model must answer 503, not hang clients)
            _log.exception("the modelled engine broke; the backend takes no more requests")
        finally:
            self.stop()

    async def _sleep(self, delay_s: float | None) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _move(self, now_s: float) -> float | None:
        """Move the engine on; return the real seconds until it wants to move again."""
        for output in self._model.advance(now_s):
            self._deliver(output)
        progress = False
        for model_id, generation in self._open.items():
            if generation.streaming and generation.first_token_s is not None:
                progress = True
                produced = self._model.produced_tokens(now_s, model_id) or 0
                if produced > generation.produced_tokens:
                    generation.produced_tokens = produced
                    generation.changed()
        event_s = self._model.next_event_s()
        if event_s is None:
            return None
        delay_s = max(0.0, (event_s - now_s) / self._clock.time_scale)
        return min(delay_s, PROGRESS_EVERY_S) if progress else delay_s

    def _deliver(self, output: SimOutput) -> None:
        generation = self._open[output.request_id]
        generation.first_token_s = output.first_token_s
        generation.cached_tokens = output.cached_tokens
        generation.produced_tokens = output.produced_tokens
        if output.finished_s is not None:
            del self._open[output.request_id]
            generation.finished = True
            self.finish_reasons[generation.finish_reason] += 1
            self._record(generation, output.finished_s, "completed")
        generation.changed()

    def _record(self, generation: Generation, finished_s: float, outcome: str) -> None:
        self._num_records += 1
        clock, first_token_s = self._clock, generation.first_token_s
        self._records.append(
            FinishedRequest(
                sequence=self._num_records,
                request_id=generation.request_id,
                session_id=generation.session_id,
                received_at=clock.epoch_s(generation.received_s),
                first_token_at=None if first_token_s is None else clock.epoch_s(first_token_s),
                finished_at=clock.epoch_s(finished_s),
                prompt_tokens=generation.sim_request.prompt_tokens,
                cached_tokens=generation.cached_tokens,
                output_tokens=generation.produced_tokens,
                outcome=outcome,
            )
        )
