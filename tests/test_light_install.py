"""What `import tao_client` may bring: no server, no numpy, no openai, nothing slow."""

import subprocess
import sys
from importlib.metadata import requires

FORBIDDEN = (
    "openai", "anthropic", "numpy", "starlette", "uvicorn", "uvloop", "orjson", "prometheus_client",
    "httpx", "httpx2", "opentelemetry.sdk", "requests", "tao_coordinator", "tao_integrations",
)  # fmt: skip


def test_import_brings_nothing_heavy() -> None:
    code = f"import sys, tao_client; print([m for m in {FORBIDDEN!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_base_requirements_are_light() -> None:
    base = [line for line in requires("tao-client") or [] if "extra ==" not in line]
    names = {line.split(">")[0].split("<")[0].split("=")[0].strip() for line in base}
    assert names == {
        "anyio",
        "httpx2",
        "opentelemetry-api",
        "opentelemetry-exporter-otlp-proto-common",
        "opentelemetry-sdk",
    }


def test_command_without_the_extra_says_what_to_install() -> None:
    """As in a light install: the server's packages cannot be imported."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'starlette', 'uvicorn', 'orjson', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "from tao_coordinator.cli import main\n"
        "sys.exit(main(['coordinator', '--backend', 'http://127.0.0.1:9']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "tao-client[coordinator]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
