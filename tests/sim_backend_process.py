"""`tao sim-backend` as a process of its own, with scripts for its model."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

MODEL = "sim/test"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command by which mini-SWE-agent ends a task."""


@dataclass(frozen=True, slots=True)
class SimBackend:
    """A running backend."""

    url: str
    """Without `/v1`."""
    process: "subprocess.Popen[str]"

    def requests(self) -> list[dict[str, Any]]:
        """The finished requests, as the backend saw them."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/sim/requests", timeout=10) as reply:
            return cast("list[dict[str, Any]]", json.load(reply))


def bash_script(commands: Sequence[str], text: str = "Next.") -> dict[str, object]:
    """A script of the model: one `bash` call per turn."""
    return {
        "turns": [
            {
                "text": text,
                "tool_calls": [{"name": "bash", "arguments": {"command": command}}],
                "output_tokens": 20,
            }
            for command in commands
        ]
    }


@contextlib.contextmanager
def sim_backend(
    folder: Path, scripts: Mapping[str, object], *flags: str, model: str = MODEL
) -> Generator[SimBackend]:
    """A backend that plays these scripts, twenty times faster than real unless told otherwise."""
    script = folder / "script.json"
    script.write_text(json.dumps({"scripts": scripts}))
    command = [sys.executable, "-m", "tao_coordinator", "sim-backend", "--port", "0", "--json"]
    defaults = ["--model", model, "--script", str(script), "--time-scale", "20"]
    with subprocess.Popen(
        [*command, *defaults, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield SimBackend(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.kill()
