"""A stretch of decode steps against the same steps one by one."""

from tao_coordinator.simulation.decode_batch import DecodeBatch
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.request import LiveRequest, SimRequest
from tao_coordinator.simulation.stretch import Stretch

ENGINE = PRESETS[DEFAULT_PRESET]


def stretch_of_100() -> tuple[Stretch, list[float]]:
    """One sequence of 20,000 tokens decodes 100 steps from 5.0 on; the time of each step's end."""
    batch = DecodeBatch(16)
    live = LiveRequest(SimRequest(request_id="a", prompt_tokens=20_000, output_tokens=200))
    live.computed_tokens, live.produced_tokens = 20_000, 1
    batch.join(live)
    stretch = Stretch(ENGINE, batch)
    stretch.start_s = 5.0
    stretch.begin_decode(100)
    ends_s = [5.0]
    for step in range(100):
        ends_s.append(ends_s[-1] + ENGINE.decode_s(1, 1, 20_000 + step))
    return stretch, ends_s


def test_steps_are_counted_at_their_ends() -> None:
    stretch, ends_s = stretch_of_100()
    for steps in range(1, 100):
        middle_s = (ends_s[steps] + ends_s[steps + 1]) / 2
        assert stretch.steps_done(middle_s) == steps
    assert stretch.steps_done(5.0) == 0
    assert stretch.steps_done(1e9) == 100


def test_cut_ends_at_the_first_boundary_that_is_not_before() -> None:
    stretch, ends_s = stretch_of_100()
    stretch.cut((ends_s[41] + ends_s[42]) / 2)
    assert stretch.num_steps == 42
    assert abs(stretch.end_s - ends_s[42]) < 1e-9
    stretch.cut(ends_s[60])  # later than its end: nothing changes
    assert stretch.num_steps == 42


def test_step_with_prompts_is_never_cut() -> None:
    stretch, _ = stretch_of_100()
    prompt = LiveRequest(SimRequest(request_id="b", prompt_tokens=9_000, output_tokens=1))
    prompt.computed_tokens = 8_000
    stretch.begin_prefill([(prompt, 1_000)])
    end_s = 5.0 + ENGINE.prefill_step_s(1, 20_000, 1_000, 1_000 * 8_500.0)
    stretch.cut(5.01)
    assert (stretch.num_steps, stretch.end_s) == (1, end_s)
    assert stretch.steps_done(end_s) == 0
