"""A host tier below the pool, computed by hand: what lies there, when it is back, what it costs."""

import math

import pytest

from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.block_pool import BlockPool
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.host_tier import HostTier, HostTierSpec
from tao_coordinator.simulation.request import SimOutput, SimRequest

ENGINE = PRESETS[DEFAULT_PRESET]
D0, DB, DC, P0, P1, P2 = 13.566, 0.0286, 4.243e-05, 6.866, 0.04883, 1.542e-06
RATE = 16_000.0  # one block of 16 tokens in a millisecond


def prefill_s(new: int, prefix: int = 0) -> float:
    ms = max(P0, 1.6 * P1 * new) + 1.6 * P2 * new * (prefix + new / 2)
    return ms / 1000


def request(
    request_id: str, prompt_tokens: int, session: int | None = None, output_tokens: int = 1
) -> SimRequest:
    blocks = range(0 if session is None else prompt_tokens // 16)
    return SimRequest(
        request_id=request_id,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        block_hashes=tuple((session or 0) * 1_000_000 + block for block in blocks),
    )


def engine(host_tokens: int = 16_384, pool_tokens: int = 2_048, **fields: bool) -> BackendModel:
    spec = HostTierSpec(tokens=host_tokens, reload_tokens_per_s=RATE, **fields)
    return BackendModel(ENGINE, capacity_tokens=pool_tokens, host_tier=spec)


def play(model: BackendModel) -> dict[str, SimOutput]:
    """Run until nothing happens any more."""
    finished: dict[str, SimOutput] = {}
    while (event_s := model.next_event_s()) is not None:
        for output in model.advance(event_s):
            if output.finished_s is not None:
                finished[output.request_id] = output
        model.pool.check()
        model.host.check()
    return finished


def with_lost_session(model: BackendModel) -> None:
    """Session 1 (64 blocks) is computed, then loses all but 3 blocks of the pool to session 2."""
    model.submit(0.0, request("a", 1_024, session=1))
    play(model)
    model.submit(1.0, request("b", 2_000, session=2))
    play(model)


def test_evicted_prefix_is_loaded_instead_of_computed() -> None:
    model = engine()
    with_lost_session(model)
    model.submit(10.0, request("c", 1_024, session=1))
    output = play(model)["c"]
    # 63 blocks can be hit, 3 of them in the pool: 60 come from the host, the last is computed.
    assert output.first_token_s == pytest.approx(10.0 + 0.060 + prefill_s(16, 1_008))
    assert output.admitted_s == 10.0
    assert output.cached_tokens == 1_008
    seen = model.snapshot(20.0)
    assert (seen.prefix_hits_tokens, seen.host_hits_tokens) == (48, 960)
    assert seen.used_blocks == 0


def test_without_a_tier_the_same_prompt_is_computed() -> None:
    model = BackendModel(ENGINE, capacity_tokens=2_048)
    with_lost_session(model)
    model.submit(10.0, request("c", 1_024, session=1))
    assert play(model)["c"].first_token_s == pytest.approx(10.0 + prefill_s(976, 48))


def test_engine_decodes_on_while_a_prefix_is_loaded() -> None:
    model = engine(pool_tokens=4_096)
    with_lost_session(model)
    model.submit(2.0, request("x", 2_048, session=3))  # the rest of session 1 goes
    play(model)
    model.submit(10.0, request("d", 32, output_tokens=200))
    first_s = 10.0 + prefill_s(32)
    model.advance(first_s)
    model.submit(first_s, request("c", 1_024, session=1))
    missing = 63 - model.pool.match(request("c", 1_024, 1).block_hashes, 63)
    # It is admitted at the end of the step under way, and loaded while 13.6 ms steps go on; its
    # last block is computed from the first step boundary after.
    step_s = (D0 + DB) / 1000
    steps = math.ceil((step_s + missing / 1000) / step_s)
    outputs = play(model)
    boundary_s = first_s + steps * step_s
    assert outputs["c"].first_token_s == pytest.approx(
        boundary_s + max(D0 + DB, 1.6 * P1 * 16) / 1000, abs=2e-4
    )


def test_prompt_behind_a_loading_one_is_admitted_at_once() -> None:
    model = engine(pool_tokens=4_096)
    with_lost_session(model)
    model.submit(2.0, request("x", 2_048, session=3))
    play(model)
    model.submit(10.0, request("c", 1_024, session=1))
    model.submit(10.0, request("d", 64))
    outputs = play(model)
    assert outputs["d"].first_token_s == pytest.approx(10.0 + prefill_s(64))
    assert outputs["c"].first_token_s > outputs["d"].first_token_s


def test_loads_share_the_link_in_order() -> None:
    model = engine(pool_tokens=4_096)
    for number in (1, 2):
        model.submit(float(number), request(f"a{number}", 1_024, session=number))
        play(model)
    model.submit(3.0, request("x", 4_090, session=3))  # the pool holds nothing of 1 and 2 now
    play(model)
    for number in (1, 2):
        model.submit(10.0, request(f"b{number}", 1_024, session=number))
    outputs = play(model)
    first_s = 10.0 + 0.063 + prefill_s(16, 1_008)
    assert outputs["b1"].first_token_s == pytest.approx(first_s)
    assert outputs["b2"].first_token_s == pytest.approx(10.0 + 0.126 + prefill_s(16, 1_008))


def test_tier_loses_what_was_asked_for_longest_ago_tail_first() -> None:
    tier = HostTier(HostTierSpec(tokens=100 * 16, reload_tokens_per_s=RATE), 16)
    first, second = tuple(range(60)), tuple(range(1_000, 1_060))
    tier.write_through(first, 60)
    tier.write_through(second, 60)
    assert (tier.match(first, 60), tier.match(second, 60)) == (40, 60)
    tier.write_through(first, 60)  # refreshed and written again: the other one pays
    assert (tier.match(first, 60), tier.match(second, 60)) == (60, 40)


def test_what_is_being_loaded_is_not_lost() -> None:
    model = engine(host_tokens=2_560)
    with_lost_session(model)
    chain = request("c", 1_024, session=1).block_hashes
    before = model.host.match(chain, 63)
    assert before == 160 - 125
    model.submit(10.0, request("c", 1_024, session=1))
    model.advance(10.0)
    model.host.write_through(tuple(range(5_000, 5_125)), 125)
    assert model.host.match(chain, 63) == before
    assert play(model)["c"].cached_tokens == before * 16


def test_without_writing_through_only_what_was_moved_is_there() -> None:
    model = engine(is_written_through=False)
    with_lost_session(model)
    chain = request("c", 1_024, session=1).block_hashes
    assert model.host.match(chain, 63) == 0
    model.host.write(chain, 64)
    assert model.host.match(chain, 63) == 63


@pytest.mark.parametrize("after_s", [0.01, 0.0602])
def test_abort_while_loading_leaves_nothing_behind(after_s: float) -> None:
    model = engine()
    with_lost_session(model)
    model.submit(10.0, request("c", 1_024, session=1))
    model.submit(10.0, request("d", 2_000, session=4))  # does not fit beside it
    model.advance(10.0 + min(after_s, 0.06))
    assert model.abort(10.0 + after_s, "c")
    outputs = play(model)
    assert outputs.keys() == {"d"}
    assert model.snapshot(99.0).used_blocks == 0
    assert not model.host.is_busy


def test_preempted_request_comes_back_from_the_host() -> None:
    model = engine(pool_tokens=1_024, host_tokens=8_192)
    long = SimRequest(
        request_id="long",
        prompt_tokens=480,
        output_tokens=300,
        block_hashes=tuple(range(100, 130)),
        output_block_hashes=tuple(range(130, 148)),
    )
    model.submit(0.0, request("first", 480, session=9, output_tokens=300))
    model.submit(0.0, long)
    outputs = play(model)
    seen = model.snapshot(1_000.0)
    assert seen.preemptions >= 1
    assert outputs["long"].finished_s is not None
    assert seen.prefilled_tokens < 480 + 480 + 300  # its prompt was not computed again


def test_no_tier_holds_nothing_and_is_never_busy() -> None:
    tier = HostTier(None, 16)
    tier.write(tuple(range(4)), 4)
    tier.end_loads(1.0, BlockPool(4))
    assert tier.match(tuple(range(4)), 4) == 0
    assert (tier.is_busy, tier.num_requests, tier.next_s(0.0)) == (False, 0, math.inf)


@pytest.mark.parametrize(("tokens", "rate"), [(0, 1.0), (16, 0.0), (16, -1.0), (16, float("nan"))])
def test_impossible_tier_is_refused(tokens: int, rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        HostTierSpec(tokens=tokens, reload_tokens_per_s=rate)


def test_moved_cache_leaves_the_pool_and_comes_back_before_it_is_asked_for() -> None:
    model = engine(is_written_through=False, pool_tokens=4_096)
    chain = request("a", 1_024, session=1).block_hashes
    model.submit(0.0, request("a", 1_024, session=1))
    play(model)
    model.move(5.0, chain, to_host=True)
    assert (model.pool.match(chain, 64), model.host.match(chain, 64)) == (0, 64)
    model.move(6.0, chain, to_host=False)
    assert model.next_event_s() == 6.0
    play(model)
    assert model.pool.match(chain, 64) == 64
    model.submit(10.0, request("b", 1_024, session=1))
    output = play(model)["b"]
    assert output.first_token_s == pytest.approx(10.0 + prefill_s(16, 1_008))
    assert model.snapshot(99.0).host_hits_tokens == 0


def test_cache_is_not_moved_back_where_there_is_no_room() -> None:
    model = engine(is_written_through=False)
    chain = request("a", 1_024, session=1).block_hashes
    model.submit(0.0, request("a", 1_024, session=1))
    play(model)
    model.move(5.0, chain, to_host=True)
    model.submit(6.0, request("b", 1_500, output_tokens=400))
    model.advance(7.0)
    model.move(7.0, chain, to_host=False)
    assert model.pool.match(chain, 64) == 0
    assert play(model).keys() == {"b"}
    assert model.snapshot(99.0).used_blocks == 0
