"""mini-SWE-agent's own command lines, against a modelled backend and a real coordinator."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coordinator_process import CoordinatorProcess, coordinator, refused_url, wait_until
from sim_backend_process import MODEL, SUBMIT, SimBackend, bash_script, sim_backend

CLASS_PATH = "tao_integrations.mini_swe_agent.TaoInteractiveAgent"
EXAMPLE_YAML = Path(__file__).parents[2] / "integrations" / "mini-swe-agent" / "tao.yaml"
LIMIT_S = 100

pytestmark = pytest.mark.timeout(150)  # each test starts several processes with slow imports
COMMANDS = ["pwd > /dev/null; echo hello", "seq 1 40", SUBMIT]


@dataclass
class Site:
    """Two backends with the same scripts, and a coordinator in front of them."""

    backends: Sequence[SimBackend]
    coordinator: CoordinatorProcess
    folder: Path
    children: ExitStack

    def requests(self) -> list[dict[str, Any]]:
        return [request for backend in self.backends for request in backend.requests()]

    def counters(self) -> Any:
        return self.coordinator.state()["counters"]

    def assert_told(self, *, turns: int, commands: int) -> None:
        """The coordinator has seen exactly this, and nothing is left open."""
        wait_until(lambda: self.counters()["tool_ends"] == commands)
        wait_until(lambda: self.coordinator.state()["sessions"] == [])
        counters = self.counters()
        assert counters["tool_starts"] == commands
        assert sum(counters["granted"].values()) == turns
        assert counters["released"] == {"completed": turns}


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    scripts = {
        "plain": bash_script(COMMANDS),
        "slow": bash_script(["echo first", "sleep 30", SUBMIT]),
        "paced": bash_script(["sleep 0.5", "sleep 0.5", "sleep 0.5", SUBMIT]),
    }
    with ExitStack() as stack:
        backends = [stack.enter_context(sim_backend(tmp_path, scripts)) for _ in range(2)]
        flags = [word for backend in backends for word in ("--backend", backend.url)]
        service = stack.enter_context(coordinator(tmp_path / "coordinator.log", *flags))
        wait_until(lambda: all(b["healthy"] for b in service.state()["backends"]))
        yield Site(backends, service, tmp_path, stack.enter_context(ExitStack()))


def start(
    site: Site, arguments: Sequence[str], *, endpoint: str | None = None
) -> "subprocess.Popen[str]":
    """Start a command line of mini-SWE-agent; an empty endpoint leaves the variable out."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TAO_")}
    if endpoint != "":
        environment["TAO_ENDPOINT"] = endpoint or site.coordinator.url
    child = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=site.folder,
        env=environment
        | {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": str(site.folder / "config"),
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_KEY": "none",
            "HF_HOME": str(site.folder / "datasets"),
            "HF_HUB_OFFLINE": "1",
        },
    )
    site.children.enter_context(child)
    site.children.callback(child.kill)
    return child


def finish(child: "subprocess.Popen[str]") -> None:
    output, _ = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0, output


def mini(site: Site, task: str, *more: str, name: str = "run") -> list[str]:
    """Arguments of `mini` for one run without a person."""
    own = [f"model.model_name=openai/{MODEL}", f"model.model_kwargs.api_base={own_url(site)}"]
    settings = [word for setting in ("mini.yaml", *own) for word in ("-c", setting)]
    unattended = ["-y", "--exit-immediately", "-o", str(site.folder / f"{name}.json")]
    return ["minisweagent.run.mini", *settings, "-t", task, *unattended, *more]


def own_url(site: Site) -> str:
    return f"{site.backends[0].url}/v1"


def trajectory(site: Site, name: str = "run") -> dict[str, Any]:
    return json.loads((site.folder / f"{name}.json").read_text())


def what_was_said(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The conversation without its dates and random ids."""
    return [
        (message["role"], message.get("content"), actions(message)) for message in run["messages"]
    ]


def actions(message: dict[str, Any]) -> list[str]:
    return [action["command"] for action in message.get("extra", {}).get("actions", [])]


def test_agent_class_by_import_path(site: Site) -> None:
    finish(start(site, mini(site, "[[script plain]] go", "--agent-class", CLASS_PATH)))

    run = trajectory(site)
    assert run["info"]["exit_status"] == "Submitted"
    assert run["info"]["config"]["agent_type"] == CLASS_PATH
    (session_id,) = {request["session_id"] for request in site.requests()}
    assert session_id.startswith("mini-")
    # The coordinator chose one of two backends, and the session stayed where its cache was.
    used = [backend for backend in site.backends if backend.requests()]
    assert len(used) == 1
    assert [request["cached_tokens"] > 0 for request in used[0].requests()] == [False, True, True]
    site.assert_told(turns=3, commands=3)


def test_agent_class_and_endpoint_by_configuration_alone(site: Site) -> None:
    (site.folder / "config").mkdir()
    (site.folder / "config" / ".env").write_text(f"TAO_ENDPOINT='{site.coordinator.url}'\n")
    arguments = mini(site, "[[script plain]] go")
    arguments[3:3] = ["-c", str(EXAMPLE_YAML)]
    assert arguments[1:5] == ["-c", "mini.yaml", "-c", str(EXAMPLE_YAML)]

    finish(start(site, arguments, endpoint=""))

    assert trajectory(site)["info"]["config"]["agent_type"] == CLASS_PATH
    site.assert_told(turns=3, commands=3)


def test_open_command_is_known_by_the_models_id(site: Site) -> None:
    child = start(
        site,
        mini(
            site,
            "[[script slow]] go",
            *("--agent-class", CLASS_PATH, "-c", "environment.timeout=2"),
        ),
    )
    open_calls: list[str] = []

    def second_is_open() -> bool:
        # In this order: between the two looks a call may begin.
        if site.counters()["tool_starts"] != 2:
            return False
        for session in site.coordinator.state()["sessions"]:
            open_calls.extend(session["open_tool_calls"])
        return bool(open_calls)

    wait_until(second_is_open, LIMIT_S)
    finish(child)

    run = trajectory(site)
    ids = [m["extra"]["actions"][0]["tool_call_id"] for m in run["messages"] if actions(m)]
    assert ids[1] in open_calls
    timed_out = [m for m in run["messages"] if m["role"] == "tool"][1]
    assert timed_out["extra"]["exception_type"] == "TimeoutExpired"
    site.assert_told(turns=3, commands=3)


def test_batch_runs_name_their_sessions_after_instances(site: Site) -> None:
    names = ["astropy__astropy-1", "django__django-2", "sympy__sympy-3"]
    dataset = site.folder / "dataset"
    dataset.mkdir()
    (dataset / "train.jsonl").write_text(
        "".join(
            json.dumps({"instance_id": name, "problem_statement": "[[script plain]] go"}) + "\n"
            for name in names
        )
    )
    settings = [
        "swebench.yaml",
        f"model.model_name=openai/{MODEL}",
        f"model.model_kwargs.api_base={own_url(site)}",
        f"environment.cwd={site.folder}",
    ]
    batch = ["swebench", "--subset", str(dataset), "--split", "train", "--workers", "3"]
    batch += ["--environment-class", "local", "--output", str(site.folder / "out")]
    batch += [word for setting in settings for word in ("-c", setting)]

    finish(start(site, ["tao_integrations.mini_swe_agent", *batch]))

    predictions = json.loads((site.folder / "out" / "preds.json").read_text())
    assert sorted(predictions) == names
    for name in names:
        run = json.loads((site.folder / "out" / name / f"{name}.traj.json").read_text())
        assert run["info"]["exit_status"] == "Submitted"
        mine = [request for request in site.requests() if request["session_id"] == name]
        assert len(mine) == 3
    site.assert_told(turns=9, commands=9)


@pytest.mark.parametrize("coordinator_is", ["dead", "absent"])
def test_without_coordinator_the_run_is_the_one_it_was(coordinator_is: str, site: Site) -> None:
    endpoint = refused_url() if coordinator_is == "dead" else ""
    task = "[[script plain]] go"
    finish(start(site, mini(site, task, name="plain"), endpoint=""))
    bodies = [request["prompt_tokens"] for request in site.requests()]

    finish(start(site, mini(site, task, "--agent-class", CLASS_PATH), endpoint=endpoint))

    assert what_was_said(trajectory(site)) == what_was_said(trajectory(site, "plain"))
    assert [request["prompt_tokens"] for request in site.requests()] == bodies * 2
    assert {request["session_id"] for request in site.requests()} == {None}
    assert site.backends[1].requests() == []
    assert site.counters()["granted"] == {}


def test_a_coordinator_that_dies_under_way_stops_nobody(site: Site) -> None:
    child = start(site, mini(site, "[[script paced]] go", "--agent-class", CLASS_PATH))
    wait_until(lambda: site.counters()["tool_starts"] > 0, LIMIT_S)

    site.coordinator.process.kill()
    killed_at = time.time()
    finish(child)

    assert trajectory(site)["info"]["exit_status"] == "Submitted"
    requests = site.requests()
    assert len(requests) == 4
    # Unplaced calls go to the agent's own address.
    late = [r for r in site.backends[0].requests() if r["received_at"] > killed_at]
    assert len(late) >= 2
