"""For tests of agents: what the SDK would have sent, and a model that plays a script. No network.

from tao_client.testing import ScriptedModel, ToolRequest, capture_events

def test_agent_tells_of_its_tools():
    model = ScriptedModel(ToolRequest("bash", {"command": "ls"}), "done")
    client = tao.wrap(OpenAI(http_client=model.http_client(), api_key="none"))
    with capture_events() as events:
        run_agent(client)
    assert [event.name for event in events][:2] == ["tao.session.start", "tao.tool.start"]
"""

from collections.abc import Generator
from contextlib import contextmanager

from tao_client import _connection, _conversations
from tao_client._events import AttributeValue as AttributeValue
from tao_client._events import Event as Event
from tao_client._scripted_model import Reply as Reply
from tao_client._scripted_model import ScriptedModel as ScriptedModel
from tao_client._scripted_model import ToolRequest as ToolRequest

__all__ = [
    "AttributeValue",
    "Event",
    "Reply",
    "ScriptedModel",
    "ToolRequest",
    "capture_events",
    "reset",
]


@contextmanager
def capture_events() -> Generator[list[Event]]:
    """Collect the events of this process, of all its threads, instead of sending them.

    No connection is needed; leases of a connection that there is are not touched.
    """
    events: list[Event] = []
    previous = _connection.set_capture(events.append)
    try:
        yield events
    finally:
        _connection.set_capture(previous)


def reset() -> None:
    """Disconnect and look at the environment anew at the next use: a clean start for each test."""
    _connection.reset()
    _conversations.forget_conversations()
