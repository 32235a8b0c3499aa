"""The command line: `tao COMMAND`.

Each command is one module with `register(subparsers)`, which adds its parser and sets `run`, a
function from the parsed arguments to the exit status. Modules import what is heavy inside `run`, so
that `tao --help` is quick and works without the extras. Whatever a user can do wrong is one line on
standard error and exit status 2.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NoReturn, cast

COMMANDS: Final = (
    "coordinator",
    "doctor",
    "drain",
    "top",
    "sim_backend",
    "demo",
    "replay",
    "study",
    "bench",
)
"""Modules of this package, in the order of `tao --help`."""

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141
"""Whoever read the output has gone: what a shell reports of a program that SIGPIPE ended."""


class UsageError(Exception):
    """The command line cannot be understood."""


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as one line instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status and never lets an expected failure out."""
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        # Out here, since it may also strike while another failure is being reported.
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `tao ... | head`: what is left is for nobody, and the interpreter would complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNREAD


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
        run = cast("Callable[[argparse.Namespace], int]", arguments.run)
        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0].startswith("tao_"):
            raise
        return _fail(
            f"this command needs more packages ({error.name} is missing): "
            'pip install "tao-client[coordinator]"'
        )
    except BrokenPipeError:
        raise
    except (UsageError, ValueError, OSError) as error:
        return _fail(_one_line(error))
    except Exception as error:
        if not _is_own(error):
            raise
        return _fail(_one_line(error))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tao", description="The scheduler between LLM agents and GPU backends.")
    parser.add_argument("--version", action="version", version=f"tao {_version()}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name in COMMANDS:
        import_module(f"{__name__}.{name}").register(subparsers)
    return parser


def _version() -> str:
    try:
        return version("tao-client")
    except PackageNotFoundError:
        return "unknown"


def _is_own(error: Exception) -> bool:
    """Whether this is an error that the coordinator raises on purpose."""
    from tao_coordinator.errors import CoordinatorError

    return isinstance(error, CoordinatorError)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str) -> int:
    print(f"tao: {message}", file=sys.stderr)
    return EXIT_USAGE
