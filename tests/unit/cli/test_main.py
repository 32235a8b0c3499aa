"""`tao`: one line and status 2 for whatever a user can do wrong; no traceback for Ctrl-C."""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

import pytest

from tao_coordinator import cli
from tao_coordinator.errors import ConfigurationError, CoordinatorError


def fails_with(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    return run


def main_running(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> int:
    coordinator = importlib.import_module("tao_coordinator.cli.coordinator")
    monkeypatch.setattr(coordinator, "run", run)
    return cli.main(["coordinator"])


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"tao {version('tao-client')}\n"


def test_status_of_the_command_is_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main_running(monkeypatch, lambda _: 7) == 7


@pytest.mark.parametrize(
    "arguments", [[], ["no-such-command"], ["coordinator", "--no-such-flag"], ["--no-such-flag"]]
)
def test_misuse_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("tao: ")
    assert captured.err.count("\n") == 1
    assert "--help" in captured.err


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("bad\nflag"),
        CoordinatorError("bad flag"),
        ValueError("bad   flag"),
        OSError("bad flag"),
    ],
)
def test_expected_failure_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_running(monkeypatch, fails_with(error)) == 2
    assert capsys.readouterr().err == "tao: bad flag\n"


def test_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ModuleNotFoundError("No module named 'starlette'", name="starlette.routing")
    assert main_running(monkeypatch, fails_with(error)) == 2
    assert capsys.readouterr().err == (
        "tao: this command needs more packages (starlette.routing is missing): "
        'pip install "tao-client[coordinator]"\n'
    )


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug"), ModuleNotFoundError("x", name="tao_coordinator.nothing")],
)
def test_bug_is_not_hidden(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        main_running(monkeypatch, fails_with(error))


def test_interrupt_is_130_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_running(monkeypatch, fails_with(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_buffered", [True, False])
def test_reader_that_has_seen_enough_is_no_failure(is_buffered: bool) -> None:
    """`tao study list | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        result = subprocess.run(
            [sys.executable, "-m", "tao_coordinator", "study", "list"],
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=50,
            env={**os.environ, "PYTHONUNBUFFERED": "" if is_buffered else "1"},
        )
    assert (result.returncode, result.stderr) == (141, b"")
