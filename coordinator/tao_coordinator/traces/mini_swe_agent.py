"""mini-SWE-agent trajectories (`*.traj.json`, format `mini-swe-agent-1`): one document per session.

Assistant messages carry the time of the reply and the actions; each following observation carries
the time at which *all* actions of that reply were over, since they are rendered together. One
action is thus timed exactly; of several only the last end is known, and they share the phase evenly
(the harness runs them one after the other). The prompt carries no time: the first call begins when
its reply says that it was created, in whole seconds, unless that is when it was there (some clients
fill it in themselves). Only command heads, times and usage are taken over.
"""

import re
from typing import Final

from tao_coordinator.core.command_head import command_head
from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    SkippedRows,
    ToolRecord,
    Trace,
    TurnRecord,
)

NAME: Final = "mini-swe-agent"
_FORMAT: Final = "mini-swe-agent-1"
_TOOL: Final = "bash"
_FIRST_CALL_S: Final = (1.0, 3_600.0)
"""How long before its end a reply may say that it was created, to be believed."""
_BLOCK: Final = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)


def read(text: str, name: str) -> Trace:
    """Read one trajectory.

    Args:
        text: one JSON document.
        name: of the file: the session's id where the document does not say.

    Raises:
        MalformedTrace: no trajectory with at least one dated reply.
    """
    skipped = SkippedRows()
    try:
        document = fields.parse_row(text)
        if not fields.text(document, "trajectory_format", "").startswith(_FORMAT):
            raise FieldError(f"trajectory_format is not {_FORMAT}")
        messages = fields.items(document, "messages")
    except FieldError as error:
        raise MalformedTrace(f"{name}: {error}") from error
    config = fields.row(fields.row(document, "info"), "config")
    try:
        timeout_s = fields.seconds(fields.row(config, "environment"), "timeout")
    except FieldError:
        timeout_s = None
    session_id = fields.text(document, "instance_id", "") or name
    reader = _Reader(session_id, timeout_s)
    for number, item in enumerate(messages):
        try:
            reader.take(fields.as_row(item, "message"))
        except FieldError as error:
            skipped.add(f"message {number}", str(error))
    if not reader.turns:
        reason = skipped.to_value().first_reason()
        raise MalformedTrace(f"{name}: no dated reply of mini-SWE-agent{reason}")
    model = fields.row(config, "model").get("model_name")
    session = SessionRecord(
        session_id=session_id,
        turns=tuple(reader.turns),
        arrival_s=reader.zero_s,
        harness=NAME,
        model=model if isinstance(model, str) else "",
        source=NAME,
    )
    return Trace(format=NAME, sessions=(session,), skipped=skipped.to_value())


class _Reader:
    """Walks over the messages of one trajectory."""

    def __init__(self, session_id: str, timeout_s: float | None) -> None:
        self._session_id = session_id
        self._timeout_s = timeout_s
        self.zero_s: float | None = None
        self._asked_s: float | None = None
        """When the latest input of the model was there."""
        self._commands: list[str] = []
        """Actions of the latest reply whose observation has not come yet."""
        self._tools: tuple[ToolRecord, ...] = ()
        self.turns: list[TurnRecord] = []

    def take(self, message: Row) -> None:
        extra = fields.row(message, "extra")
        time_s = fields.instant_s(extra, "timestamp")
        if time_s is None:
            time_s = fields.instant_s(message, "timestamp")
        if time_s is None:
            return
        if message.get("role") == "assistant" or "actions" in extra:
            self._reply(message, extra, time_s)
        else:
            self._input(time_s)

    def _reply(self, message: Row, extra: Row, time_s: float) -> None:
        response = fields.row(extra, "response")
        latest_s = _created_s(response, time_s) if self._asked_s is None else self._asked_s
        asked_s = time_s if latest_s is None else min(time_s, latest_s)
        zero_s = asked_s if self.zero_s is None else self.zero_s
        usage = fields.row(response, "usage")
        turn = TurnRecord(
            request_id=f"{self._session_id}:{len(self.turns)}",
            arrival_s=max(0.0, asked_s - zero_s),
            duration_s=None if latest_s is None else time_s - asked_s,
            input_tokens=_either(usage, "prompt_tokens", "input_tokens"),
            cached_tokens=_cached_tokens(usage),
            output_tokens=_either(usage, "completion_tokens", "output_tokens"),
            tools=self._tools,
        )
        commands = _commands(message, extra)
        self.turns.append(turn)
        self._commands, self._tools, self._asked_s = commands, (), time_s
        self.zero_s = zero_s

    def _input(self, time_s: float) -> None:
        if self._commands and self._asked_s is not None and self.zero_s is not None:
            share_s = max(0.0, time_s - self._asked_s) / len(self._commands)
            start_s = self._asked_s - self.zero_s
            self._tools = tuple(
                ToolRecord(
                    call_id=f"{self.turns[-1].request_id}.{number}",
                    tool=_TOOL,
                    key=command_head(command),
                    start_s=start_s + number * share_s,
                    duration_s=share_s,
                    timeout_s=self._timeout_s,
                )
                for number, command in enumerate(self._commands)
            )
            self._commands = []
        self._asked_s = time_s


def _commands(message: Row, extra: Row) -> list[str]:
    """Commands of a reply; releases before 2 left them in the text."""
    if "actions" in extra:
        actions = [fields.as_row(item, "action") for item in fields.items(extra, "actions")]
        return [fields.text(action, "command") for action in actions]
    content = message.get("content")
    return _BLOCK.findall(content)[:1] if isinstance(content, str) else []


def _created_s(response: Row, over_s: float) -> float | None:
    """When a reply was begun, by its own word; `None`: it has none that can be used."""
    try:
        found_s = fields.instant_s(response, "created")
    except FieldError:
        return None
    shortest_s, longest_s = _FIRST_CALL_S
    if found_s is None or not shortest_s <= over_s - found_s <= longest_s:
        return None
    return found_s


def _cached_tokens(usage: Row) -> int | None:
    """A detail: where it is no count the rest of the reply is as good."""
    try:
        return fields.tokens(fields.row(usage, "prompt_tokens_details"), "cached_tokens")
    except FieldError:
        return None


def _either(usage: Row, name: str, other: str) -> int | None:
    found = fields.tokens(usage, name)
    return fields.tokens(usage, other) if found is None else found
