"""`wrap` beside the tracing libraries that wrap the same client, in both orders."""

import importlib.util
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from framework_site import Site
from sdk_stubs import BackendStub, Recorded, Stub, send_json

AGENT = Path(__file__).resolve().parents[2] / "traced_agent_process.py"
SAID = dict.fromkeys(["plain", "stream", "async", "async stream"], "Hello world")
PATHS = {"langsmith": "/runs/multipart", "langfuse": "/otel/v1/traces", "braintrust": "/logs3"}


class Sink(Stub):
    """Where the tracing libraries send what they see: takes anything."""

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        organization = {"id": "o", "name": "o", "api_url": self.url, "proxy_url": self.url}
        send_json(handler, 200, {"org_info": [organization]})


@pytest.mark.parametrize("wrapper", PATHS)
def test_traced_client_is_placed_and_still_traced(site: Site, wrapper: str) -> None:
    if importlib.util.find_spec(wrapper) is None:
        pytest.skip(f"{wrapper} is not installed")
    with BackendStub() as leased, BackendStub() as own, Sink() as sink:
        site.coordinator.backend_url = leased.url
        names = {
            "LANGSMITH": {"TRACING": "true", "API_KEY": "k", "ENDPOINT": sink.url},
            "LANGFUSE": {"PUBLIC_KEY": "k", "SECRET_KEY": "k", "BASE_URL": sink.url},
            "BRAINTRUST": {"API_KEY": "k", "APP_URL": sink.url, "API_URL": sink.url},
            "TAO": {"ENDPOINT": site.coordinator.url},
        }
        settings = {f"{who}_{name}": to for who, all_ in names.items() for name, to in all_.items()}
        done = subprocess.run(
            [sys.executable, str(AGENT), wrapper, f"{own.url}/v1"],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"ours last": SAID, "ours first": SAID}
        assert [len(leased.calls), len(own.calls)] == [8, 0]
        asked = [str(one.json["session_id"]) for one in site.coordinator.leases]
        assert asked == ["ours-last"] * 4 + ["ours-first"] * 4
        releases = [(one["outcome"], one["input_tokens"]) for one in site.coordinator.releases]
        assert releases == [("completed", 1200)] * 8
        assert sink.seen("POST", PATHS[wrapper]), "they have seen the calls"
