"""Mooncake traces: JSON lines of timestamp (ms), input_length, output_length, hash_ids.

Blocks are 512 tokens. Rows may carry a `session_id` (the multi-turn dialect of AIPerf, with `delay`
in ms before each later turn). The published traces do not: there, a later prompt that begins with
all whole blocks of an earlier one is taken for the next turn of its session, unless so many prompts
begin like that that it must be a prefix which sessions have in common. Where no `delay` is told the
pause before a turn is the time since the one before, the unknown time of that one's reply included.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    SkippedRows,
    Trace,
    TurnRecord,
)

NAME: Final = "mooncake"
BLOCK_TOKENS: Final = 512
WHOLE_BLOCKS_MIN: Final = 2
"""Of a prompt that another may go on with: the first block is often the same for all sessions."""
BEGINNINGS_MAX: Final = 6
"""So many different blocks may follow a prompt's whole ones: its own last part, those of turns too
short for a block of their own, a reply that was asked for twice. More is a prefix in common.
"""
_MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class _Request:
    """One row."""

    number: int
    session_id: str
    """Empty: it does not say."""
    timestamp_s: float | None
    delay_s: float | None
    turn: TurnRecord
    """What the row says by itself."""
    prefixes: Sequence[int]
    """Per block a digest of the prompt up to its end; empty where nothing can be told by them."""
    num_whole: int
    """Blocks that the prompt fills."""

    @property
    def whole(self) -> int | None:
        """Digest of all whole blocks; `None`: too few to tell sessions apart."""
        if not WHOLE_BLOCKS_MIN <= self.num_whole <= len(self.prefixes):
            return None
        return self.prefixes[self.num_whole - 1]


def read(text: str, name: str) -> Trace:
    """Read all requests.

    Args:
        text: JSON lines.
        name: of the file, for messages and session ids.

    Raises:
        MalformedTrace: not one usable row.
    """
    skipped = SkippedRows()
    requests: list[_Request] = []
    for number, (where, line) in enumerate(fields.lines_of(text)):
        try:
            requests.append(_request(fields.parse_row(line), number))
        except FieldError as error:
            skipped.add(where, str(error))
    if not requests:
        raise MalformedTrace(f"{name}: no usable Mooncake row{skipped.to_value().first_reason()}")
    latest = _Latest(requests, name)
    turns: dict[str, list[TurnRecord]] = {}
    arrivals_s: dict[str, float | None] = {}
    for request in requests:
        session_id = request.session_id or latest.session_id(request)
        first_s = arrivals_s.setdefault(session_id, request.timestamp_s)
        session = turns.setdefault(session_id, [])
        session.append(_turn(request, f"{session_id}:{len(session)}", session, first_s))
    sessions = tuple(
        SessionRecord(
            session_id=session_id, turns=tuple(rows), arrival_s=arrivals_s[session_id], source=NAME
        )
        for session_id, rows in turns.items()
    )
    return Trace(format=NAME, sessions=sessions, skipped=skipped.to_value())


def _request(row: Row, number: int) -> _Request:
    input_tokens = fields.tokens(row, "input_length")
    if input_tokens is None:
        raise FieldError("input_length is missing")
    block_size = fields.tokens(row, "block_size") or BLOCK_TOKENS
    turn = TurnRecord(
        request_id="",
        arrival_s=0.0,
        input_tokens=input_tokens,
        output_tokens=fields.tokens(row, "output_length"),
        block_size=block_size,
        block_runs=fields.block_runs(row),
    )
    session_id = fields.text(row, "session_id", "")
    # Runs are short however many blocks they stand for: only what is spelled out is looked at.
    is_spelled_out = not session_id and not fields.items(row, "hash_runs")
    return _Request(
        number=number,
        session_id=session_id,
        timestamp_s=fields.instant_s(row, "timestamp", per_second=_MS),
        delay_s=fields.seconds(row, "delay", per_second=_MS),
        turn=turn,
        prefixes=_prefixes(fields.items(row, "hash_ids")) if is_spelled_out else (),
        num_whole=input_tokens // block_size,
    )


def _prefixes(blocks: Sequence[object]) -> Sequence[int]:
    found = array("q")
    digest = 0
    for block in blocks:
        digest = hash((digest, block))
        found.append(digest)
    return found


def _turn(
    request: _Request, request_id: str, earlier: Sequence[TurnRecord], first_s: float | None
) -> TurnRecord:
    """The turn on its session's clock, behind the earlier ones."""
    arrival_s = earlier[-1].arrival_s + (request.delay_s or 0.0) if earlier else 0.0
    if request.timestamp_s is not None and first_s is not None:
        arrival_s = max(arrival_s, request.timestamp_s - first_s)
    gap_s = request.delay_s or 0.0
    if request.delay_s is None and earlier:
        gap_s = arrival_s - earlier[-1].arrival_s
    return replace(request.turn, request_id=request_id, arrival_s=arrival_s, gap_s=gap_s)


class _Latest:
    """The latest prompts of sessions that name themselves nowhere, by their whole blocks."""

    def __init__(self, requests: Sequence[_Request], name: str) -> None:
        self._name = name
        self._common = _common(requests)
        self._by_whole: dict[int, tuple[str, _Request]] = {}

    def session_id(self, request: _Request) -> str:
        """Session of a request, in the order of the trace; a new one, if it goes on with none."""
        session_id = f"{self._name}:{request.number}"
        whole = request.whole
        if whole is None or request.timestamp_s is None:
            return session_id
        for prefix in reversed(request.prefixes):
            found = self._by_whole.get(prefix)
            if found is not None and _goes_on(found[1], request):
                # Another prompt that begins like it is a fork, and a session of its own.
                del self._by_whole[prefix]
                session_id = found[0]
                break
        if whole not in self._common:
            self._by_whole[whole] = (session_id, request)
        return session_id


def _goes_on(earlier: _Request, later: _Request) -> bool:
    """The reply in the longer prompt was not there at once."""
    shorter, longer = earlier.turn.input_tokens, later.turn.input_tokens
    asked_s, again_s = earlier.timestamp_s, later.timestamp_s
    return (shorter or 0) < (longer or 0) and (asked_s or 0.0) < (again_s or 0.0)


def _common(requests: Sequence[_Request]) -> set[int]:
    """Prefixes that sessions have in common: too many different blocks follow."""
    ends = {request.whole for request in requests}
    followers: defaultdict[int, set[int]] = defaultdict(set)
    for request in requests:
        # A digest that follows stands for the block that does.
        for prefix, following in zip(request.prefixes, request.prefixes[1:], strict=False):
            if prefix in ends and len(followers[prefix]) <= BEGINNINGS_MAX:
                followers[prefix].add(following)
    return {prefix for prefix, found in followers.items() if len(found) > BEGINNINGS_MAX}
