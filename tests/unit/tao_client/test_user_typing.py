"""The types that users of the SDK see, as pyright sees them."""

import json
import os
import subprocess
import sys
from pathlib import Path

SNIPPETS = Path(__file__).resolve().parents[2] / "typing_snippets.py"


def test_users_snippets_have_the_types_that_they_say(tmp_path: Path) -> None:
    """Beside a copy with one wrong word, which shows that the check can fail."""
    wrong = tmp_path / "wrong.py"
    text = SNIPPETS.read_text(encoding="utf-8")
    assert text.count("assert_type(") > 20
    wrong.write_text(text.replace('bash("ls", check=True), str)', 'bash("ls", check=True), int)'))
    tools = str(Path(sys.executable).parent)
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", str(SNIPPETS), str(wrong)],
        cwd=SNIPPETS.parents[1],
        env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 2
    errors = [(one["file"], one["rule"]) for one in found["generalDiagnostics"]]
    assert errors == [(str(wrong), "reportAssertTypeFailure")], done.stdout
