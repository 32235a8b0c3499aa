"""The dashboard in a real browser, where one is installed (Debian's `chromium`)."""

import shutil
import subprocess
from pathlib import Path

import pytest
from coordinator_process import coordinator, stub_backends

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EVIL = "<img src=x onerror=alert(1)>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")


def page_of(url: str, profile: Path) -> str:
    """What the page holds after its script has run for three seconds."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=3000",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout


def test_browser_shows_what_is_going_on(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"gpu-7={stub.url}") as process,
    ):
        start = {
            "session_id": "swe-17",
            "hook_event_name": "PreToolUse",
            "tool_name": EVIL,
            "tool_use_id": "t",
        }
        assert process.call("POST", "/hooks/claude-code", start).status == 200
        page = page_of(process.url + "/", tmp_path / "profile")
    assert "The backend answers; nobody waits" in page
    assert "gpu-7" in page
    assert "swe-17" in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page, "names are text"
    assert EVIL not in page


def test_browser_is_asked_for_the_key(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"gpu-7={stub.url}", "--api-key=k") as process,
    ):
        page = page_of(process.url + "/", tmp_path / "profile")
    assert '<div id="key">' in page, "no longer hidden"
    assert "gpu-7" not in page
