"""The failures in `docs/rivals.md` name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "rivals.md").read_text(encoding="utf-8")
NUM_FAILURES = 24


def rows() -> list[list[str]]:
    """Cells of the table: number, failure, here, tests."""
    _, _, after = PAGE.partition("## What breaks rivals")
    section, _, _ = after.partition("\n## ")
    lines = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def nodes() -> list[str]:
    return [node for row in rows() for node in re.findall(r"`([^`]+)`", row[-1])]


def test_every_failure_has_its_row() -> None:
    assert [row[0] for row in rows()] == [str(n) for n in range(1, NUM_FAILURES + 1)]
    for row in rows():
        number, *cells = row
        assert len(cells) == 3, number
        assert all(cells), number
        assert re.fullmatch(r"(`tests/\S+\.py::\w+`\s?)+", cells[-1]), number


@pytest.mark.parametrize("node", nodes())
def test_named_test_exists(node: str) -> None:
    path, _, name = node.partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert "pytestmark" not in source, "a whole module may be skipped"
    found = [
        item
        for item in ast.parse(source).body
        if isinstance(item, ast.FunctionDef) and item.name == name
    ]
    assert len(found) == 1, f"{path} has no test called {name}"
    assert name.startswith("test_")
    for decorator in found[0].decorator_list:
        assert not re.search(r"skip|xfail|slow", ast.unparse(decorator)), (
            "a named test must run everywhere"
        )
