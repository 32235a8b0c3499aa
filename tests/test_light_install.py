"""What `import tao_client` may bring: no server, no numpy, no openai, nothing slow."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

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


def declared(*extras: str) -> set[str]:
    """Distributions that the base install, or one of these extras, names."""
    found: set[str] = set()
    for line in requires("tao-client") or []:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if extra is None or extra[1] in extras:
            name = re.match(r"[\w.-]+", line)
            assert name is not None
            found.add(name[0].lower())
    return found


def imported(folder: Path) -> set[str]:
    """Absolute imports of all modules, as dotted names."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(item, ast.Import):
                found |= {alias.name for alias in item.names}
            elif isinstance(item, ast.ImportFrom) and item.module and item.level == 0:
                found.add(item.module)
    return found


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("tao_client", ()),
        ("coordinator/tao_coordinator", ("coordinator", "kv-events", "study")),
        (
            "integrations/tao_integrations",
            ("mini-swe-agent", "openai", "openai-agents", "pydantic-ai", "langchain", "smolagents"),
        ),
    ],
)
def test_everything_imported_is_declared(folder: str, extras: tuple[str, ...]) -> None:
    """What another package happens to bring along may be gone tomorrow."""
    allowed = declared(*extras) | {"tao-client"}
    # Namespace packages are shared by several distributions; litellm comes with mini-swe-agent,
    # whose model class it is.
    namespaces = {"google": "googleapis-common-protos", "litellm": "mini-swe-agent"}
    namespaces["opentelemetry"] = "opentelemetry-api"
    distributions = packages_distributions()
    for name in imported(ROOT / folder):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top.startswith("tao_"):
            continue
        if name.startswith("opentelemetry.proto"):
            owners = {"opentelemetry-proto"}
        elif top in namespaces:
            owners = {namespaces[top]}
        else:
            owners = {o.lower().replace("_", "-") for o in distributions.get(top, [])}
        assert owners & allowed, f"{folder} imports {name}, which no requirement of it brings"
