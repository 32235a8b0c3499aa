"""The step, or the stretch of equal decode steps, that an engine is at: when it began and ends."""

import math
from collections.abc import Sequence

from tao_coordinator.simulation.decode_batch import DecodeBatch
from tao_coordinator.simulation.engine_constants import EngineConstants
from tao_coordinator.simulation.request import LiveRequest


class Stretch:
    """One step with prompts in it, or several pure decode steps in which nothing can change."""

    __slots__ = ("_batch", "_constants", "_is_decode", "end_s", "num_steps", "start_s")

    def __init__(self, constants: EngineConstants, batch: DecodeBatch) -> None:
        self._constants = constants
        self._batch = batch
        self._is_decode = False
        self.start_s = 0.0
        self.end_s = 0.0
        """Of an idle engine: when it looks at its queue again."""
        self.num_steps = 0
        """0: the engine is idle."""

    def begin_prefill(self, chunks: Sequence[tuple[LiveRequest, int]]) -> None:
        """From `start_s` on one step with these prompts in it: so many tokens of each."""
        batch = self._batch
        new, attention = 0, 0.0
        for live, chunk in chunks:
            new += chunk
            attention += chunk * (live.computed_tokens + chunk / 2)
        self._is_decode = False
        self.num_steps = 1
        self.end_s = self.start_s + self._constants.prefill_step_s(
            batch.num_sequences, batch.context_tokens, new, attention
        )

    def begin_decode(self, num_steps: int) -> None:
        """From `start_s` on so many pure decode steps of the batch as it is."""
        self._is_decode = True
        self.num_steps = num_steps
        self.end_s = self.start_s + self._length_s(num_steps)

    def steps_done(self, now_s: float) -> int:
        """Return how many decode steps have ended by `now_s`."""
        if not self._is_decode or not self.num_steps or now_s <= self.start_s:
            return 0
        if now_s >= self.end_s:
            return self.num_steps
        # The length of a stretch is quadratic in its steps: solve, then come down to the truth.
        passed_s = now_s - self.start_s
        per_step_s = self._length_s(1)
        growth_s = self._length_s(2) - 2 * per_step_s
        linear_s = per_step_s - growth_s / 2
        root_s = math.sqrt(max(0.0, linear_s**2 + 2 * growth_s * passed_s))
        steps = min(int(2 * passed_s / (linear_s + root_s)) + 1, self.num_steps)
        while self.start_s + self._length_s(steps) > now_s:
            steps -= 1
        return steps

    def cut(self, now_s: float) -> None:
        """End it at its first step boundary that is not before `now_s`."""
        if not self._is_decode or self.num_steps <= 1:
            return
        steps = self.steps_done(now_s)
        if steps == 0 or self.start_s + self._length_s(steps) < now_s:
            steps += 1
        if steps < self.num_steps:
            self.num_steps = steps
            self.end_s = self.start_s + self._length_s(steps)

    def _length_s(self, num_steps: int) -> float:
        batch = self._batch
        return self._constants.decode_s(num_steps, batch.num_sequences, batch.context_tokens)
