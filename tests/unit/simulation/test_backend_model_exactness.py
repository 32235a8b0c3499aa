"""The model against an engine that goes block by block and step by step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.simulation.naive_engine import NaiveEngine

from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.request import SimOutput, SimRequest

CONSTANTS = PRESETS[DEFAULT_PRESET]
BLOCK_SIZE = 4
SHARED_BLOCKS = 3


def chain_of(session: int, num_tokens: int) -> tuple[int, ...]:
    """A session's hash chain: some blocks common to all sessions, then its own."""
    blocks = range(num_tokens // BLOCK_SIZE)
    return tuple(
        index if index < SHARED_BLOCKS else (session + 1) * 1_000_000 + index for index in blocks
    )


def request_of(request_id: str, session: int, prompt_tokens: int, output_tokens: int) -> SimRequest:
    chain = chain_of(session, prompt_tokens + output_tokens)
    in_prompt = prompt_tokens // BLOCK_SIZE
    return SimRequest(
        request_id=request_id,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        block_hashes=chain[:in_prompt],
        output_block_hashes=chain[in_prompt:],
    )


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[tuple[float, SimRequest]], dict[str, float]]:
    arrivals: list[tuple[float, SimRequest]] = []
    aborts: dict[str, float] = {}
    now_ms = 0
    for index in range(draw(st.integers(1, 14))):
        now_ms += draw(st.sampled_from([0, 0, 1, 13, 40, 300, 2000]))
        session = draw(st.integers(0, 3))
        request = request_of(
            f"r{index}", session, draw(st.integers(1, 60)), draw(st.integers(1, 40))
        )
        arrivals.append((now_ms / 1000, request))
        if draw(st.integers(0, 9)) == 0:
            aborts[request.request_id] = (now_ms + draw(st.integers(0, 400))) / 1000 + 1e-4
    return arrivals, aborts


def drive(
    model: BackendModel, arrivals: list[tuple[float, SimRequest]], aborts: dict[str, float]
) -> list[SimOutput]:
    """Submit and abort at their times, advance to every event in between and to the end."""
    moments = [(at, 0, request.request_id, request) for at, request in arrivals]
    moments += [(at, 1, request_id, None) for request_id, at in aborts.items()]
    outputs: list[SimOutput] = []
    for at, _, request_id, request in sorted(moments, key=lambda moment: moment[:2]):
        while (event_s := model.next_event_s()) is not None and event_s < at:
            outputs += model.advance(event_s)
            model.pool.check()
        if request is not None:
            model.submit(at, request)
        else:
            model.abort(at, request_id)
        model.pool.check()
    while (event_s := model.next_event_s()) is not None:
        outputs += model.advance(event_s)
        model.pool.check()
    return outputs


@settings(max_examples=300, deadline=None)
@given(
    workload=workloads(),
    num_blocks=st.sampled_from([25, 30, 40, 200]),
    token_budget=st.sampled_from([8, 32, 8192]),
    max_sequences=st.sampled_from([1, 3, 8]),
)
def test_model_matches_a_step_by_step_engine(
    workload: tuple[list[tuple[float, SimRequest]], dict[str, float]],
    num_blocks: int,
    token_budget: int,
    max_sequences: int,
) -> None:
    arrivals, aborts = workload
    naive = NaiveEngine(CONSTANTS, BLOCK_SIZE, num_blocks, token_budget, max_sequences)
    expected = naive.run(arrivals, aborts)
    model = BackendModel(
        CONSTANTS,
        block_size=BLOCK_SIZE,
        capacity_tokens=num_blocks * BLOCK_SIZE,
        token_budget=token_budget,
        max_sequences=max_sequences,
    )

    outputs = drive(model, arrivals, aborts)

    finished = {output.request_id: output for output in outputs if output.finished_s is not None}
    assert set(finished) == {
        request_id
        for request_id, sequence in expected.items()
        if sequence.finished_s is not None
        # An abort during the last step still counts: nothing is reported after it.
        and aborts.get(request_id, sequence.finished_s) >= sequence.finished_s
    }
    for request_id, output in finished.items():
        sequence = expected[request_id]
        assert output.cached_tokens == sequence.cached
        assert output.first_token_s == pytest.approx(sequence.first_s, rel=1e-9)
        assert output.finished_s == pytest.approx(sequence.finished_s, rel=1e-9)
        assert output.produced_tokens == sequence.request.output_tokens
    final = model.snapshot(1e6)
    assert final.preemptions == naive.preemptions
    assert (final.running, final.waiting, final.used_blocks) == (0, 0, 0)
    assert naive.pool.num_referenced == 0
    assert final.finished + final.aborted == len(arrivals)


@settings(max_examples=60, deadline=None)
@given(workload=workloads(), data=st.data())
def test_times_do_not_depend_on_when_the_model_is_asked(
    workload: tuple[list[tuple[float, SimRequest]], dict[str, float]], data: st.DataObject
) -> None:
    arrivals, _ = workload

    def run(*, peek: bool) -> list[SimOutput]:
        model = BackendModel(CONSTANTS, block_size=BLOCK_SIZE, capacity_tokens=40 * BLOCK_SIZE)
        outputs: list[SimOutput] = []
        last_s = 0.0
        for at, request in arrivals:
            if peek and at > last_s:
                middle_s = data.draw(st.floats(last_s, at))
                outputs += model.advance(middle_s)
                model.snapshot(middle_s)
            model.submit(at, request)
            last_s = at
        return outputs + model.advance(1e6)

    assert run(peek=True) == run(peek=False)
