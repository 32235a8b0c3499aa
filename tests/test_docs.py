"""What the pages tell users to type or look at exists: commands, flags, variables, metrics."""

import contextlib
import io
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tao_coordinator import cli
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.service.metrics import EngineCollector, ServiceMetrics
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.study import StudyOptions

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "integrations").rglob("*.md")),
]
PACKAGES = {"tao_client", "tao_coordinator", "tao_integrations"}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def sources() -> str:
    folders = ("tao_client", "coordinator", "integrations", "tests/engine")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    paths.append(ROOT / "tests" / "recorded_sessions.py")
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def commands(text: str) -> list[list[str]]:
    """Words after `tao` in shell blocks, blocks of no language and code spans."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    shell = "\n".join(block for language, block in blocks if language in ("", "sh", "console"))
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = shell.replace("\\\n", " ").splitlines() + re.findall(r"`([^`\n]+)`", prose)
    found = [re.search(r"(?:^|[\s/])tao ([a-z][^\n#;&]*)", line) for line in lines]
    return [match.group(1).split() for match in found if match]


@cache
def help_of(*words: str) -> str | None:
    """The help of a command; `None`: there is no such command."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.redirect_stderr(io.StringIO()):
        try:
            status: object = cli.main([*words, "--help"])
        except SystemExit as stopped:
            status = stopped.code
    return page.getvalue() if status == 0 else None


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_commands_and_flags_exist(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        first = words[0]
        alternatives = re.split(r"[|,]", words[1]) if first in ("bench", "study") else [""]
        for second in alternatives:
            page = help_of(*[word for word in (first, second) if word])
            assert page is not None, f"tao {first} {second}"
            flags = set(re.findall(r"--[a-z][a-z-]*", page))
            for word in words:
                flag = re.match(r"\[?(--[a-z][a-z-]*)", word)
                assert flag is None or flag.group(1) in flags, f"tao {first} {second} {word}"


@cache
def workloads() -> set[str]:
    cells = (cell for study in STUDIES.values() for cell in study.make_cells(StudyOptions()))
    return {cell.workload.name for cell in cells}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_studies_and_their_workloads_exist(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        if words[:2] != ["study", "run"]:
            continue
        for name in words[2].split("|") if len(words) > 2 else []:
            assert name in {*STUDIES, "NAME", "all"}, name
        for flag, value in pairwise(words):
            if flag == "--trace":
                # What a reader's files are called nobody can know: `swe=...` stands for any.
                workload, _, file = value.partition("=")
                assert workload in workloads() and file, value


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_variables_are_read_somewhere(path: Path) -> None:
    for name in set(re.findall(r"\bTAO_[A-Z_]+\b", path.read_text(encoding="utf-8"))):
        assert name in sources(), name


@cache
def metrics() -> set[str]:
    """Those whose names are put together, by a coordinator's collectors."""
    service, engine = ServiceMetrics(), Engine(Parameters())
    service.registry.register(
        EngineCollector(lambda: engine.observe(0.0), engine.honesty, "0", service.tool_label)
    )
    return {family.name for family in service.registry.collect()}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_metrics_are_made_somewhere(path: Path) -> None:
    for name in re.findall(r"`(tao_[a-z_]+)[`{ ]", path.read_text(encoding="utf-8")):
        family = name.removesuffix("_total")
        assert name in PACKAGES or family in metrics() or f'"{family}"' in sources(), name


@cache
def names_of_tests() -> set[str]:
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in tests for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_tests_exist(path: Path) -> None:
    for span in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
        for place in re.findall(r"\btests/[\w/.]+", span):
            assert (ROOT / place).exists(), place
        for name in re.findall(r"\btest_\w+\b(?!\.py)", span):
            assert name in names_of_tests(), name


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(path: Path) -> Mapping[str, str]:
    """Headings by the name that a link uses."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-"): one for one in headings}


def test_commands_are_found_wherever_pages_have_them() -> None:
    text = """Try `tao top` or

```
tao study run a --seeds 1 \\
    --trace swe=...
```
```python
tao.connect()  # tao demo
```
    """
    assert commands(text) == [
        ["study", "run", "a", "--seeds", "1", "--trace", "swe=..."],
        ["top"],
    ]
