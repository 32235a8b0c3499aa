"""Recorded sessions for long tests: public, but not part of this repository."""

import os
from pathlib import Path

import pytest

FOLDER = Path(
    os.environ.get("TAO_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces"
)
"""Where they are: `TAO_TRACES`, or beside the checkout."""
FILES = {"swe": "claude_code_tools.jsonl.gz", "agentx": "weka_claudecode_compact.jsonl.gz"}


def traces(*workloads: str) -> dict[str, str]:
    """Path of the recorded sessions of each workload; skips the test that has none."""
    paths = {name: FOLDER / FILES[name] for name in workloads}
    missing = [path.name for path in paths.values() if not path.is_file()]
    if missing:
        pytest.skip(f"no recorded sessions ({', '.join(missing)}): set TAO_TRACES to their folder")
    return {name: str(path) for name, path in paths.items()}
