"""mini-SWE-agent without its banner, its own configuration and the network."""

import asyncio
import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.integrations.scripted_server import ScriptedServer

from tao_client import testing

CONFIG_FOLDER = tempfile.mkdtemp(prefix="tao-mini-test-")
atexit.register(shutil.rmtree, CONFIG_FOLDER, ignore_errors=True)

# Read when minisweagent and litellm are imported, which the test modules do at their top.
os.environ.update(
    MSWEA_SILENT_STARTUP="1",
    MSWEA_GLOBAL_CONFIG_DIR=CONFIG_FOLDER,
    MSWEA_COST_TRACKING="ignore_errors",
    MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1",  # the second would come 4 s later
    LITELLM_LOCAL_MODEL_COST_MAP="True",
)

HERE = Path(__file__).parent

UNCLOSED_SOCKETS = "ignore::pytest.PytestUnraisableExceptionWarning"

AgentFactory = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of litellm's own types, at their first use, are not ours to mend."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning:pydantic"))
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED_SOCKETS))


@pytest.fixture(autouse=True)
def clean_sdk() -> Iterator[None]:
    """No connection of ours or of litellm before and after each test."""
    import litellm

    testing.reset()
    # litellm's plain calls ask for this thread's event loop, and would leave a new one unclosed.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
    testing.reset()
    clients: Any = litellm.in_memory_llm_clients_cache
    for client in clients.cache_dict.values():
        client.close()
    clients.flush_cache()
    # Clients that litellm made twice and forgot: their sockets must not trouble another's test.
    gc.collect()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def events() -> Iterator[list[testing.Event]]:
    with testing.capture_events() as captured:
        yield captured


@pytest.fixture
def make_model(server: ScriptedServer) -> AgentFactory:
    """A `LitellmModel` whose own address is the scripted server."""

    def make(kind: type | None = None, **settings: Any) -> Any:
        from minisweagent.models.litellm_model import LitellmModel

        own = {"api_base": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
        return (kind or LitellmModel)(
            model_name=settings.pop("model_name", "openai/sim"),
            model_kwargs=own | settings.pop("model_kwargs", {}),
            **settings,
        )

    return make


@pytest.fixture
def make_agent(make_model: AgentFactory, tmp_path: Path) -> AgentFactory:
    """An agent with real commands in a temporary folder."""

    def make(
        kind: type | None = None, *, model: Any = None, env: Any = None, **settings: Any
    ) -> Any:
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.environments.local import LocalEnvironment

        return (kind or DefaultAgent)(
            model or make_model(),
            env or LocalEnvironment(cwd=str(tmp_path), timeout=30),
            system_template="You are an agent.",
            instance_template="{{task}}",
            **settings,
        )

    return make
