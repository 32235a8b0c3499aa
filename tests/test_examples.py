"""The examples run as they stand, and what they do arrives at a real coordinator."""

import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coordinator_process import CoordinatorProcess, coordinator, wait_until
from sim_backend_process import SimBackend, sim_backend

EXAMPLES = Path(__file__).parent.parent / "examples"
LIMIT_S = 100

pytestmark = pytest.mark.timeout(150)  # each test starts several processes with slow imports


@dataclass
class Site:
    """A backend and a coordinator in front of it."""

    backend: SimBackend
    coordinator: CoordinatorProcess
    folder: Path

    def run(self, example: str) -> list[str]:
        """Run an example in a fresh process; its output, line by line."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TAO_")}
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / example)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.folder,
            env=environment
            | {
                "OPENAI_BASE_URL": f"{self.backend.url}/v1",
                "TAO_ENDPOINT": self.coordinator.url,
                "MSWEA_SILENT_STARTUP": "1",
                "MSWEA_GLOBAL_CONFIG_DIR": str(self.folder / "config"),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def counters(self) -> Any:
        """The coordinator's totals."""
        return self.coordinator.state()["counters"]

    def wait_for_tools(self, number: int) -> None:
        """Wait until the events of all tool calls have arrived."""
        wait_until(lambda: self.counters()["tool_ends"] == number)
        assert self.counters()["tool_starts"] == number


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    flags = ["--script", str(EXAMPLES / "02_mini_swe_agent.json")]
    with (
        sim_backend(tmp_path, {}, *flags, model="sim/qwen3-32b-bf16-tp2") as backend,
        coordinator(tmp_path / "coordinator.log", "--backend", backend.url) as service,
    ):
        wait_until(lambda: service.call("GET", "/readyz").status == 200)
        yield Site(backend, service, tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_fit_on_a_screen(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


def test_quickstart(site: Site) -> None:
    *prompts, last = site.run("01_quickstart.py")

    assert last == "4 turns and as many tool calls, scheduled"
    seen = site.backend.requests()
    assert [(r["prompt_tokens"], r["cached_tokens"]) for r in seen] == [
        (int(line.split()[2]), int(line.split()[0])) for line in prompts
    ]
    assert [request["session_id"] for request in seen] == ["quickstart"] * 4
    assert seen[-1]["cached_tokens"] > 0
    assert sum(site.counters()["granted"].values()) == 4
    site.wait_for_tools(4)


def test_mini_swe_agent(site: Site) -> None:
    last = site.run("02_mini_swe_agent.py")[-1]

    assert last == "Submitted after 4 turns; greet.py prints: hello world"
    (session_id,) = {request["session_id"] for request in site.backend.requests()}
    assert session_id.startswith("mini-")
    assert sum(site.counters()["granted"].values()) == 4
    site.wait_for_tools(4)
