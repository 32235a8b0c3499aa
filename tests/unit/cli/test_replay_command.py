"""The command that a page of `tao replay` tells: it asks for the same runs."""

import argparse
import shlex

import pytest

from tao_coordinator.cli import replay

OUTPUT_ONLY = {"help", "report", "json", "jobs", "keep"}
"""Flags that change no figure."""
VALUES = {"format": "weka", "seeds": "3,4", "engine": "glm-4.7-fp8-tp8ep8", "policy": "tao@0.9"}


def parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    whole = argparse.ArgumentParser()
    subparsers = whole.add_subparsers()
    replay.register(subparsers)
    return whole, subparsers.choices["replay"]


FLAGS = [
    action
    for action in parsers()[1]._actions  # pyright: ignore[reportPrivateUsage]
    if action.option_strings and action.dest not in OUTPUT_ONLY
]


@pytest.mark.parametrize("flag", FLAGS, ids=[flag.dest for flag in FLAGS])
def test_told_command_asks_for_the_same(flag: argparse.Action) -> None:
    given = ["replay", "t.jsonl", flag.option_strings[0]]
    if flag.nargs != 0:
        given.append(VALUES.get(flag.dest, "7"))
    whole, _ = parsers()
    asked = whole.parse_args(given)
    assert getattr(asked, flag.dest) != flag.default
    told = shlex.split(replay._command(asked))  # pyright: ignore[reportPrivateUsage]
    again = whole.parse_args(told[1:])
    assert again == asked


def test_told_command_names_no_folder_of_this_machine() -> None:
    whole, _ = parsers()
    asked = whole.parse_args(["replay", "/home/somebody/runs", "--engine", "/home/somebody/e.json"])
    assert replay._command(asked) == (  # pyright: ignore[reportPrivateUsage]
        "tao replay runs --backends 2 --engine e.json --seeds 1 --pressure 1.2"
    )
