"""House rules that a machine can check: sizes, names, headers, versions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tao_client

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for folder in ("tao_client", "coordinator/tao_coordinator", "integrations/tao_integrations")
    for path in (ROOT / folder).rglob("*.py")
)
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
EXCEPTIONS: dict[str, str] = {}
"""Argued exceptions: `path` or `path:function` -> why it is better long."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
FORBIDDEN_IN_CORE = {
    # one word per thing: docs/glossary.md
    "program": "session",
    "trajectory": "session",
    "worker": "backend",
    "pod": "backend",
    "stickiness": "affinity",
    "throttle": "hold",
}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_is_small_named_and_has_a_header(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    name = name_of(path)
    if name not in EXCEPTIONS:
        assert len(text.splitlines()) <= MODULE_LINES_MAX, "split it by responsibility"
    assert path.stem.strip("_") not in VAGUE_NAMES
    assert ast.get_docstring(ast.parse(text)), "say in a header what the module is for"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    for item in functions(path):
        lines = (item.end_lineno or item.lineno) - item.lineno + 1
        if f"{name_of(path)}:{item.name}" not in EXCEPTIONS:
            assert lines <= FUNCTION_LINES_MAX, f"{item.name} has {lines} lines"


def test_exceptions_to_the_budgets_still_exist() -> None:
    for name in EXCEPTIONS:
        assert (ROOT / name.partition(":")[0]).exists(), f"{name} is gone: delete its exception"


def test_core_speaks_the_glossary() -> None:
    for path in SOURCES:
        if "/core/" not in path.as_posix():
            continue
        words = set(re.findall(r"[a-z]+", path.read_text(encoding="utf-8").lower()))
        for word, instead in FORBIDDEN_IN_CORE.items():
            assert word not in words, f"{name_of(path)} says {word!r}: say {instead!r}"


def test_every_module_is_imported_by_something() -> None:
    """A module that nothing names is dead; entry points and packages are named in pyproject."""
    places = [
        *SOURCES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "integrations").rglob("*.md"),
        ROOT / "pyproject.toml",
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in places}
    for path in SOURCES:
        if path.stem in {"__init__", "__main__"}:
            continue
        pattern = re.compile(rf"\b{re.escape(path.stem)}\b")
        assert any(pattern.search(text) for other, text in texts.items() if other != path), (
            f"nothing imports {name_of(path)}"
        )


def test_changelog_starts_with_the_version() -> None:
    text = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert first is not None
    assert first[1] == tao_client.__version__


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_parameter_is_explained() -> None:
    """Each constant of the decision is in docs/scheduling.md with its default."""
    from dataclasses import fields

    from tao_coordinator.core.parameters import Parameters

    text = (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
    for item in fields(Parameters):
        if item.name == "tenant_weights":
            assert "`tenant_weights`" in text
            continue
        row = re.search(rf"^\| `{item.name}` \| ([^|]+) \|", text, re.MULTILINE)
        assert row is not None, f"docs/scheduling.md does not explain {item.name}"
        assert float(row[1].replace(",", "").split()[0]) == float(item.default)  # pyright: ignore
