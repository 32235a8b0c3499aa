"""The README's two commands are the ones that CI and a newcomer run."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    return [block.strip() for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)]


def test_first_two_commands_do_all_their_set_up() -> None:
    main_job, tests = commands()[:2]
    for command in (main_job, tests):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        assert "\n" not in command
    assert main_job.endswith(".venv/bin/tao demo")
    assert tests.endswith(".venv/bin/python -m pytest")


def test_ci_runs_the_readmes_test_command() -> None:
    assert commands()[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_python_blocks_compile() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        compile(block, "README.md", "exec")
