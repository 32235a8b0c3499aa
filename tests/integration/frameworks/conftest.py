"""A clean SDK and a place to run in, for each test; no framework reports home."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_site import Site

from tao_client import testing

# Read when the frameworks are imported, which the test modules do at their top.
os.environ.update(
    OPENAI_AGENTS_DISABLE_TRACING="1",
    LANGSMITH_TRACING="false",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    OPENAI_API_KEY="none",
)

OWN_ATTRIBUTES = "ignore:Accessing the 'model_:DeprecationWarning"
"""litellm looks through all attributes of each chunk of a stream."""

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Not ours to mend: litellm's types, and what clients leave to the garbage collector."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning:pydantic"))
            item.add_marker(pytest.mark.filterwarnings(OWN_ATTRIBUTES))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    made = Site()
    yield made
    made.close()
    testing.reset()
