"""Closed-form cases: what the step law says, computed by hand."""

import math

import pytest

from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.request import RequestTooLargeError, SimOutput, SimRequest

ENGINE = PRESETS[DEFAULT_PRESET]
D0, DB, DC, P0, P1, P2 = 13.566, 0.0286, 4.243e-05, 6.866, 0.04883, 1.542e-06


def prefill_ms(new: int, prefix: int = 0) -> float:
    return max(P0, 1.6 * P1 * new) + 1.6 * P2 * new * (prefix + new / 2)


def request(
    request_id: str, prompt_tokens: int, output_tokens: int = 1, *, session: int | None = None
) -> SimRequest:
    """A request of blocks of 16 tokens; all requests of one session share one chain."""
    blocks = range(0 if session is None else (prompt_tokens + output_tokens) // 16)
    chain = tuple((session or 0) * 1_000_000 + block for block in blocks)
    cut = prompt_tokens // 16
    return SimRequest(
        request_id=request_id,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        block_hashes=chain[:cut],
        output_block_hashes=chain[cut:],
    )


def run(model: BackendModel) -> dict[str, SimOutput]:
    finished: dict[str, SimOutput] = {}
    while (event_s := model.next_event_s()) is not None:
        for output in model.advance(event_s):
            if output.finished_s is not None:
                finished[output.request_id] = output
        model.pool.check()
    return finished


def test_idle_model_has_no_next_event() -> None:
    model = BackendModel(ENGINE)
    assert model.next_event_s() is None
    assert model.advance(5.0) == []
    assert model.capacity_tokens == 306_992  # 307,000 in whole blocks


@pytest.mark.parametrize("prompt_tokens", [1, 50, 4096, 8192])
def test_single_prompt_takes_one_prefill_step(prompt_tokens: int) -> None:
    model = BackendModel(ENGINE)
    model.submit(10.0, request("a", prompt_tokens))
    assert model.next_event_s() == 10.0
    output = run(model)["a"]
    assert output.first_token_s == pytest.approx(10 + prefill_ms(prompt_tokens) / 1000)
    assert output.finished_s == output.first_token_s
    assert output.produced_tokens == 1


def test_long_prompt_is_cut_into_chunks_of_8192() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 20_000))
    expected_ms = prefill_ms(8192) + prefill_ms(8192, 8192) + prefill_ms(3616, 16384)
    assert run(model)["a"].first_token_s == pytest.approx(expected_ms / 1000)


def test_decode_follows_the_step_law() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 1000, 11))
    steps_ms = sum(D0 + DB + DC * (1000 + step) for step in range(10))
    output = run(model)["a"]
    assert output.first_token_s == pytest.approx(prefill_ms(1000) / 1000)
    assert output.finished_s == pytest.approx((prefill_ms(1000) + steps_ms) / 1000)


def test_first_token_is_reported_before_the_last() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 1000, 11))
    first_s = prefill_ms(1000) / 1000
    (first,) = model.advance(first_s + 1e-9)
    assert first.finished_s is None
    assert first.produced_tokens == 1
    assert model.advance(first_s + 0.01) == []


def test_batch_of_two_shares_prefill_and_decodes_together() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 100, 6))
    model.submit(0.0, request("b", 200, 6))
    prefill = max(P0, 1.6 * P1 * 300) + 1.6 * P2 * (100 * 50 + 200 * 100)
    steps = sum(D0 + 2 * DB + DC * (300 + 2 * step) for step in range(5))
    finished = run(model)
    for name in ("a", "b"):
        assert finished[name].first_token_s == pytest.approx(prefill / 1000)
        assert finished[name].finished_s == pytest.approx((prefill + steps) / 1000)


def test_arrival_joins_at_the_next_step_boundary_and_slows_the_others() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 100, 50))
    step_s = [(D0 + DB + DC * (100 + step)) / 1000 for step in range(49)]
    start_s = prefill_ms(100) / 1000
    at_s = start_s + sum(step_s[:3]) + step_s[3] / 2
    model.advance(at_s)
    assert model.produced_tokens(at_s, "a") == 4
    model.submit(at_s, request("b", 500))
    boundary_s = start_s + sum(step_s[:4])
    # The mixed step: b's prompt beside one decoding sequence of 104 tokens.
    mixed = max(D0 + DB, 1.6 * P1 * 500) + DC * 104 + 1.6 * P2 * 500 * 250
    finished = run(model)
    assert finished["b"].first_token_s == pytest.approx(boundary_s + mixed / 1000)
    rest_s = sum(step_s[5:])
    assert finished["a"].finished_s == pytest.approx(boundary_s + mixed / 1000 + rest_s)


def test_arrival_exactly_on_a_boundary_starts_there() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 100, 50))
    boundary_s = ENGINE.prefill_step_s(0, 0, 100, 5000.0) + ENGINE.decode_s(3, 1, 100)
    model.submit(boundary_s, request("b", 1))
    assert model.next_event_s() == pytest.approx(boundary_s, abs=1e-12)
    mixed_s = (D0 + DB + DC * 103 + 1.6 * P2 * 0.5) / 1000
    assert run(model)["b"].first_token_s == pytest.approx(boundary_s + mixed_s, abs=1e-6)


def test_token_times_inside_a_stretch_follow_the_law() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 5000, 400))
    (first,) = model.advance(prefill_ms(5000) / 1000 + 1e-9)
    at_s, produced = first.first_token_s, 1
    for step in range(399):
        at_s += (D0 + DB + DC * (5000 + step)) / 1000
        produced += 1
        if produced % 57 == 0:
            assert model.produced_tokens(at_s - 1e-6, "a") == produced - 1
            assert model.produced_tokens(at_s + 1e-6, "a") == produced


def test_steps_are_counted_exactly_at_their_ends() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.7, request("a", 5003, 300))
    model.submit(0.7, request("b", 801, 300))
    start_s = model.advance(1.2)[0].first_token_s
    for steps in range(40, 290):
        end_s = start_s + ENGINE.decode_s(steps, 2, 5804)
        assert model.produced_tokens(math.nextafter(end_s, 0.0), "a") == steps
        assert model.produced_tokens(end_s, "a") == steps + 1


def test_prompt_that_extends_the_last_reply_hits_everything_but_the_open_block() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 1000, 101, session=1))
    run(model)
    # 1,000 + 101 tokens, the last one never attended to: 1,100 in the cache, 68 full blocks.
    model.submit(100.0, request("b", 1500, session=1))
    output = run(model)["b"]
    assert output.cached_tokens == 68 * 16
    expected_ms = prefill_ms(1500 - 1088, 1088)
    assert output.first_token_s == pytest.approx(100 + expected_ms / 1000)
    snapshot = model.snapshot(200.0)
    assert snapshot.prefix_queries_tokens == 2500
    assert snapshot.prefix_hits_tokens == 1088
    assert snapshot.prompt_tokens == 2500
    assert snapshot.generation_tokens == 102
    assert snapshot.prefilled_tokens == 1000 + 412


def test_full_hit_still_computes_the_last_block() -> None:
    model = BackendModel(ENGINE)
    for at_s, name in ((0.0, "a"), (50.0, "b")):
        model.submit(at_s, request(name, 1600, session=1))
        finished = run(model)
    assert finished["b"].cached_tokens == 1584
    assert finished["b"].first_token_s == pytest.approx(50 + prefill_ms(16, 1584) / 1000)


def test_requests_without_hashes_never_hit() -> None:
    model = BackendModel(ENGINE)
    for at_s, name in ((0.0, "a"), (50.0, "b")):
        model.submit(at_s, request(name, 1600))
        finished = run(model)
    assert finished["b"].cached_tokens == 0


def working_set_hit_rate(num_sessions: int, *, turns: int = 6, pool_tokens: int = 40_000) -> float:
    """Sessions of 4,000 tokens take turns in a circle; hit rate after the first round."""
    model = BackendModel(ENGINE, block_size=16, capacity_tokens=pool_tokens)
    now_s, hits, queries = 0.0, 0, 0
    for turn in range(turns):
        for session in range(num_sessions):
            model.submit(now_s, request(f"{turn}-{session}", 4000, 33, session=session))
            output = run(model)[f"{turn}-{session}"]
            assert output.finished_s is not None
            now_s = output.finished_s + 0.5
            if turn:
                hits += output.cached_tokens
                queries += 4000
    return hits / queries


def test_hit_rate_falls_off_a_cliff_beyond_the_pool() -> None:
    assert working_set_hit_rate(8) > 0.95
    assert working_set_hit_rate(12) < 0.05


def test_queue_is_first_come_first_served_even_when_a_later_one_would_fit() -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    model.submit(0.0, request("big", 1000, 20))
    model.submit(0.0, request("large", 900, 2))
    model.submit(0.0, request("small", 16, 2))
    snapshot = model.snapshot(0.0)
    assert (snapshot.running, snapshot.waiting) == (0, 3)
    model.advance(0.0)
    snapshot = model.snapshot(0.0)
    assert (snapshot.running, snapshot.waiting, snapshot.used_blocks) == (1, 2, 63)
    finished = run(model)
    assert finished["big"].finished_s is not None
    assert finished["large"].first_token_s > finished["big"].finished_s
    assert finished["small"].first_token_s >= finished["large"].first_token_s


def test_max_sequences_bounds_the_running_requests() -> None:
    model = BackendModel(ENGINE, max_sequences=2)
    for name in "abc":
        model.submit(0.0, request(name, 10, 5))
    model.advance(0.0)
    snapshot = model.snapshot(0.0)
    assert (snapshot.running, snapshot.waiting) == (2, 1)
    finished = run(model)
    assert finished["a"].finished_s is not None
    assert finished["c"].first_token_s > finished["a"].finished_s


def test_newest_request_is_preempted_and_computed_again() -> None:
    # 10 blocks of 16: two prompts of 4 blocks each leave 2; both replies grow by 3 blocks.
    model = BackendModel(ENGINE, capacity_tokens=160)
    model.submit(0.0, request("old", 64, 49, session=1))
    model.submit(0.0, request("new", 64, 49, session=2))
    finished = run(model)
    snapshot = model.snapshot(1000.0)
    assert snapshot.preemptions == 1
    assert finished["old"].finished_s is not None
    assert finished["new"].finished_s is not None
    assert finished["new"].finished_s > finished["old"].finished_s
    assert finished["new"].produced_tokens == 49
    # The times of its first token and the count of its hits are those of the first admission.
    assert finished["new"].first_token_s == finished["old"].first_token_s
    assert snapshot.prefix_queries_tokens == 128
    # 128 for the prompts; the second time its 64 + 17 tokens, less the 4 blocks still cached, or
    # whatever the older one left of them.
    assert 128 < snapshot.prefilled_tokens <= 128 + 64 + 17
    assert snapshot.generation_tokens == 98
    assert (snapshot.running, snapshot.waiting, snapshot.used_blocks) == (0, 0, 0)


def test_reserved_growth_is_visible_as_usage_while_it_happens() -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    model.submit(0.0, request("a", 64, 65))
    model.advance(0.05)
    used = {model.snapshot(at_s).used_blocks for at_s in (0.05, 0.3, 0.5, 0.8)}
    assert used == {5, 6, 7, 8}


def abort_while_waiting(model: BackendModel) -> float:
    model.submit(0.0, request("first", 1500, 30))
    model.submit(0.0, request("victim", 1500, 30))
    model.advance(0.01)
    return 0.01


def abort_before_the_first_step(model: BackendModel) -> float:
    model.submit(0.0, request("victim", 1000, 30))
    return 0.0


def abort_during_prefill(model: BackendModel) -> float:
    model.submit(0.0, request("victim", 1500, 30))
    model.advance(0.01)
    return 0.01


def abort_during_decode(model: BackendModel) -> float:
    model.submit(0.0, request("victim", 100, 60))
    model.submit(0.0, request("other", 100, 60))
    model.advance(0.3)
    return 0.31


def abort_when_preempted(model: BackendModel) -> float:
    model.submit(0.0, request("other", 704, 120, session=1))
    model.submit(0.0, request("victim", 704, 120, session=2))
    while not model.snapshot(at_s := model.next_event_s() or 0.0).preemptions:
        model.advance(at_s)
    assert model.snapshot(at_s).waiting == 1
    return at_s


def abort_during_the_last_step(model: BackendModel) -> float:
    model.submit(0.0, request("victim", 1000, 1))
    model.advance(0.05)
    return 0.05


@pytest.mark.parametrize(
    "prepare",
    [
        abort_while_waiting,
        abort_before_the_first_step,
        abort_during_prefill,
        abort_during_decode,
        abort_when_preempted,
        abort_during_the_last_step,
    ],
)
def test_abort_leaves_nothing_behind(prepare: object) -> None:
    assert callable(prepare)
    model = BackendModel(ENGINE, capacity_tokens=1600)
    at_s = prepare(model)
    assert isinstance(at_s, float)
    assert model.abort(at_s, "victim")
    assert model.produced_tokens(at_s, "victim") is None
    assert not model.abort(at_s, "victim")
    assert "victim" not in run(model)
    snapshot = model.snapshot(1000.0)
    assert (snapshot.running, snapshot.waiting, snapshot.used_blocks) == (0, 0, 0)
    assert snapshot.aborted == 1
    assert model.pool.num_free == 100


def test_abort_of_the_first_in_the_queue_lets_the_next_in_at_the_next_step() -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    model.submit(0.0, request("running", 1000, 300))
    model.submit(0.0, request("large", 900, 2))
    model.submit(0.0, request("small", 16, 2))
    model.advance(1.0)
    assert model.abort(1.0, "large")
    assert run(model)["small"].first_token_s < 1.1


def test_abort_of_one_further_back_changes_nothing_for_the_first() -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    model.submit(0.0, request("running", 1000, 300))
    model.submit(0.0, request("large", 900, 2))
    model.submit(0.0, request("small", 16, 2))
    model.advance(1.0)
    end_s = model.next_event_s()
    assert model.abort(1.0, "small")
    assert model.next_event_s() == end_s


def test_id_of_an_aborted_request_can_be_used_again_at_once() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 1000, 30))
    model.advance(0.01)
    model.abort(0.01, "a")
    model.submit(0.01, request("a", 500, 3))
    output = run(model)["a"]
    assert output.produced_tokens == 3
    # The step of the aborted one runs to its end first.
    assert output.first_token_s == pytest.approx((prefill_ms(1000) + prefill_ms(500)) / 1000)


def test_abort_of_the_only_waiting_request_of_an_idle_engine_leaves_it_idle() -> None:
    model = BackendModel(ENGINE)
    model.submit(1.0, request("a", 1000, 30))
    model.abort(1.0, "a")
    assert model.next_event_s() is None
    model.submit(7.0, request("b", 10))
    assert run(model)["b"].first_token_s == pytest.approx(7 + P0 / 1000, abs=1e-6)


def test_counters_of_a_snapshot_are_interpolated_inside_a_stretch() -> None:
    model = BackendModel(ENGINE)
    model.submit(0.0, request("a", 100, 200))
    model.advance(1.0)
    produced = model.produced_tokens(1.0, "a")
    assert produced is not None
    assert 60 < produced < 80  # about 13.6 ms a token
    assert model.snapshot(1.0).generation_tokens == produced
    run(model)
    final = model.snapshot(100.0)
    assert final.generation_tokens == 200
    assert final.busy_s == pytest.approx(prefill_ms(100) / 1000 + ENGINE.decode_s(199, 1, 100))


def test_progress_of_a_waiting_request_is_zero() -> None:
    model = BackendModel(ENGINE, max_sequences=1)
    model.submit(0.0, request("a", 100, 200))
    model.submit(0.0, request("b", 100, 200))
    model.advance(0.5)
    assert model.produced_tokens(0.5, "b") == 0
    assert model.produced_tokens(0.5, "nobody") is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (SimRequest(request_id="x", prompt_tokens=0, output_tokens=1), "at least one prompt"),
        (SimRequest(request_id="x", prompt_tokens=1, output_tokens=0), "at least one prompt"),
        (SimRequest(request_id="a", prompt_tokens=1, output_tokens=1), "in use"),
        (
            SimRequest(request_id="x", prompt_tokens=31, output_tokens=1, block_hashes=(1, 2)),
            "than the prompt has",
        ),
        (
            SimRequest(
                request_id="x",
                prompt_tokens=32,
                output_tokens=32,
                block_hashes=(1,),
                output_block_hashes=(2,),
            ),
            "need the hashes of the whole prompt",
        ),
        (
            SimRequest(
                request_id="x",
                prompt_tokens=20,
                output_tokens=11,
                block_hashes=(1,),
                output_block_hashes=(2,),
            ),
            "than prompt and reply have",
        ),
        (SimRequest(request_id="x", prompt_tokens=1585, output_tokens=17), "do not fit into"),
    ],
)
def test_bad_request_is_refused(bad: SimRequest, message: str) -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    model.submit(0.0, request("a", 100))
    with pytest.raises(ValueError, match=message):
        model.submit(0.0, bad)
    assert model.snapshot(0.0).waiting == 1


def test_request_that_fills_the_pool_exactly_runs() -> None:
    model = BackendModel(ENGINE, capacity_tokens=1600)
    with pytest.raises(RequestTooLargeError):
        model.submit(0.0, request("too-large", 1585, 17))
    model.submit(0.0, request("fits", 1585, 16))
    assert run(model)["fits"].produced_tokens == 16


def test_time_does_not_go_back() -> None:
    model = BackendModel(ENGINE)
    model.advance(2.0)
    with pytest.raises(ValueError, match="time went back"):
        model.submit(1.0, request("a", 1))


@pytest.mark.parametrize(
    "settings", [{"block_size": 0}, {"max_sequences": 0}, {"max_sequences": 9000}]
)
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BackendModel(ENGINE, **settings)  # pyright: ignore[reportArgumentType]


def test_runs_are_repeatable() -> None:
    def play() -> list[tuple[str, float, float | None]]:
        model = BackendModel(ENGINE, capacity_tokens=4000)
        for index in range(20):
            model.submit(
                index * 0.07, request(f"r{index}", 300 + 37 * index, 40, session=index % 4)
            )
        finished = run(model)
        return [(o.request_id, o.first_token_s, o.finished_s) for o in finished.values()]

    assert play() == play()
