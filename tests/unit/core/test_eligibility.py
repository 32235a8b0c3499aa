"""What is remembered of a fleet is what looking at every backend anew would tell."""

import random

import pytest

from tao_coordinator.core.eligibility import MODELS_MAX, Eligibility
from tao_coordinator.core.events import (
    BackendAdded,
    BackendDrained,
    BackendRemoved,
    BackendSampled,
    BackendUnreachable,
)
from tao_coordinator.core.model import Backend
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine


@pytest.mark.parametrize("seed", range(4))
def test_every_event_about_a_backend_is_noticed(seed: int) -> None:
    """Random fleets that come, report, fall silent, drain and leave; asked after every event."""
    draw = random.Random(seed)
    state = (engine := Engine(Parameters())).state
    for number in range(300):
        name = f"b{draw.randrange(4)}"
        models = draw.choice([None, (), ("small",), ("small", "large")])
        event = draw.choice(
            [
                BackendAdded(backend_id=name, base_url=f"http://{name}:{draw.randrange(2)}"),
                BackendSampled(
                    backend_id=name,
                    capacity_tokens=draw.choice([None, 10_000, 90_000]),
                    models=models,
                ),
                BackendUnreachable(backend_id=name, reason="refused"),
                BackendDrained(backend_id=name),
                BackendRemoved(backend_id=name),
            ]
        )
        engine.step(float(number), [event])
        for model in ("", "small", "large"):
            usable = [b for b in state.backends.values() if b.usable and b.serves(model)]
            pools = [b.capacity_tokens for b in usable]
            found = state.eligibility.of(model)
            assert found.backends == usable
            assert (found.pool_tokens_max is None) == (not pools or None in pools)
            assert found.pool_tokens_max in (None, max((p or 0 for p in pools), default=0))


def test_models_that_callers_make_up_fill_no_memory() -> None:
    backend = Backend("b0", "http://b0", capacity_override_tokens=1_000, capacity_scale=1.0)
    backend.healthy = True
    known = Eligibility({"b0": backend})
    for number in range(3 * MODELS_MAX):
        assert known.of(f"model-{number}").backends == [backend]
    assert len(known._known) <= MODELS_MAX
