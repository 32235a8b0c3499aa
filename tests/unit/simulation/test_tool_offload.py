"""Offload and upload around a tool whose duration is known from the calls before."""

import pytest

from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.fleet import BackendSpec, Fleet, FleetSettings
from tao_coordinator.simulation.host_tier import HostTierSpec
from tao_coordinator.simulation.load import OpenLoop

RATE = 16_000.0
TURN_TOKENS = 3_200
"""A session of one prompt of 3,136 tokens and 64 of reply: 0.2 s on the link."""


class Watched(Fleet):
    """Remembers what was moved when."""

    def __init__(self, tool_s: tuple[float, ...], offloads: bool = True) -> None:
        self.moves: list[tuple[float, bool]] = []
        turns = tuple(
            TurnScript(
                input_tokens=3_136 + 64 * number,
                output_tokens=64,
                kept_tokens=0 if number == 0 else 3_136 + 64 * number,
                tools=(ToolScript(name="bash", key="make", duration_s=seconds),),
            )
            for number, seconds in enumerate((*tool_s, 0.0))
        )
        settings = FleetSettings(
            backends=(
                BackendSpec(
                    constants=PRESETS[DEFAULT_PRESET],
                    capacity_tokens=64_000,
                    host_tier=HostTierSpec(
                        tokens=640_000, reload_tokens_per_s=RATE, is_written_through=False
                    ),
                ),
            ),
            load=OpenLoop(arrivals_s=(0.0,)),
            offloads_in_tools=offloads,
        )
        script = SessionScript(session_id="s", turns=turns)
        super().__init__(settings, [script], "sticky-least-loaded")

    def move(self, backend: int, chain: object, *, to_host: bool) -> None:
        self.moves.append((self.now_s, to_host))
        super().move(backend, chain, to_host=to_host)  # pyright: ignore[reportArgumentType]


def test_first_call_is_not_forecast_and_the_second_is() -> None:
    fleet = Watched((10.0, 10.0))
    record = fleet.run()
    (down_s, is_down), (up_s, is_up) = fleet.moves
    assert (is_down, is_up) == (True, False)
    second = record.turns[1].finished_s
    tokens = record.turns[1].input_tokens + record.turns[1].output_tokens
    transfer_s = tokens / RATE
    assert down_s == pytest.approx(second + transfer_s)
    assert up_s == pytest.approx(second + 10.0 - transfer_s)
    # It was back in time: the next turn finds all but its last block.
    assert record.turns[2].cached_tokens == record.turns[2].input_tokens - 64
    assert record.turns[2].first_token_s - record.turns[2].asked_s < 0.2


def test_short_tools_move_nothing() -> None:
    fleet = Watched((0.9, 0.9, 0.9))
    fleet.run()
    assert fleet.moves == []


def test_session_that_comes_earlier_loads_what_it_needs() -> None:
    fleet = Watched((10.0, 3.0))
    record = fleet.run()
    assert [to_host for _, to_host in fleet.moves] == [True]
    last = record.turns[2]
    assert last.cached_tokens == last.input_tokens - 64
    assert last.first_token_s - last.asked_s == pytest.approx(last.cached_tokens / RATE, rel=0.2)


def test_engines_that_do_not_offload_have_no_such_watch() -> None:
    fleet = Watched((10.0, 10.0), offloads=False)
    fleet.run()
    assert fleet.tool_offload is None
    assert fleet.moves == []
