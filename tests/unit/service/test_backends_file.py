"""A watched file of backends: good, changed, half-written, broken, empty, gone."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service import backends_file
from tao_coordinator.service.backends_file import BackendsFile, parse

TOML = """
[[backend]]
backend_id = "a"
base_url = "http://a:8000"
capacity_tokens = 5000

[[backend]]
base_url = "http://b:8000"
"""


def ids(backends: Sequence[BackendConfig]) -> list[str]:
    return [backend.backend_id for backend in backends]


def test_both_formats_are_read() -> None:
    first, second = parse(TOML.encode(), is_json_lines=False)
    assert (first.backend_id, first.capacity_tokens) == ("a", 5000)
    assert second.backend_id == "b:8000"
    lines = b'{"backend_id": "a", "base_url": "http://a:8000"}\n\n{"base_url": "http://b:8000"}'
    assert ids(parse(lines, is_json_lines=True)) == ["a", "b:8000"]


@pytest.mark.parametrize(
    ("content", "is_json_lines", "culprit"),
    [
        (b"", False, "no backend"),
        (b"# nothing\n", False, "no backend"),
        (b"", True, "no backend"),
        (b"backend = 5", False, r"\[\[backend\]\]"),
        (b"[backend]\nbase_url = 'http://a'", False, r"\[\[backend\]\]"),
        (b"backend = [5]", False, "no table"),
        (b"backends = []", False, "unknown key 'backends'"),
        (b"[[backend]]\nbase_url = ", False, "no TOML"),
        (b"\xff\xfe", False, "no TOML"),
        (TOML.encode() + TOML.encode(), False, "two backends are called 'a'"),
        (b"[[backend]]\nurl = 'http://a'", False, r"\[\[backend\]\] 1: unknown key 'url'"),
        (b'{"base_url": "http://a"}\n{"base_', True, "line 2 is no JSON"),
        (b"[1]", True, "no table"),
    ],
)
def test_bad_file_is_refused_with_its_place(
    content: bytes, is_json_lines: bool, culprit: str
) -> None:
    with pytest.raises(ConfigurationError, match=culprit):
        parse(content, is_json_lines=is_json_lines)


def test_file_that_is_not_there_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        BackendsFile(tmp_path / "none.toml")


def looks(file: BackendsFile, *contents: str) -> list[list[str]]:
    """What each look at these contents in turn leads to."""
    followed: list[list[str]] = []
    for content in contents:
        file._look(content.encode(), lambda backends: followed.append(ids(backends)))
    return followed


@pytest.fixture
def file(tmp_path: Path) -> BackendsFile:
    path = tmp_path / "backends.toml"
    path.write_text(TOML)
    return BackendsFile(path)


ONE = '[[backend]]\nbase_url = "http://c:1"\n'


def test_change_is_followed_once_it_has_settled(file: BackendsFile) -> None:
    assert ids(file.first) == ["a", "b:8000"]
    assert looks(file, TOML, ONE) == []
    assert looks(file, ONE, ONE, ONE) == [["c:1"]]
    assert looks(file, TOML, TOML) == [["a", "b:8000"]]


def test_half_written_file_is_waited_for(file: BackendsFile) -> None:
    """Its first half alone would be a good file with fewer backends."""
    longer = TOML + ONE
    assert looks(file, longer[: len(TOML) // 2], longer, longer) == [["a", "b:8000", "c:1"]]


@pytest.mark.parametrize("broken", ["", "[[backend]]", "garbage", "\x00"])
def test_broken_file_changes_nothing_and_is_told_once(
    file: BackendsFile, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert looks(file, *[broken] * 5) == []
    assert len(caplog.messages) == 1
    assert "stay as they are" in caplog.text
    assert looks(file, ONE, ONE) == [["c:1"]]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("condition did not come true")


def test_file_that_vanishes_and_comes_back_is_followed(
    file: BackendsFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends_file, "LOOK_INTERVAL_S", 0.01)
    followed: list[list[str]] = []

    async def body() -> None:
        task = asyncio.create_task(file.watch(lambda backends: followed.append(ids(backends))))
        file.path.unlink()
        await until(lambda: "cannot be read" in caplog.text)
        file.path.write_text(ONE)
        await until(lambda: bool(followed))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 20))
    assert followed == [["c:1"]]
    assert caplog.text.count("cannot be read") == 1
