"""What a shell tool's command line tells of the kind of command that it is. No state."""

import re

SHELL_NAMES = frozenset({"bash", "shell", "sh", "zsh", "terminal", "run_command", "execute_bash"})
"""Tools whose `command` is a shell command line."""
_WITH_SUBCOMMAND = frozenset(
    {"git", "pip", "pip3", "uv", "npm", "pnpm", "yarn", "cargo", "go", "make", "docker", "kubectl"}
)
_PREFIX_WORDS = frozenset({"sudo", "time", "nohup", "env", "exec", "command"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_PYTHON = re.compile(r"python[0-9.]*")
_DIRECTORY_CHANGE = re.compile(r"\s*(?:cd|pushd|source|\.|export|set)\s[^&;|\n]*(?:&&|;|\n)")
_COMMAND_END = re.compile(r"[|&;\n<>()`]|\$\(")
LONGEST_COMMAND_LOOKED_AT = 1000


def command_head(command: str) -> str | None:
    """The part of a command line that says what kind of command it is; never an argument.

    The first word without its path, the module of `python -m`, the sub-command of `git`, `pip`,
    `npm`, `cargo`, `go`, `make`, `docker` and their kin. What only prepares it (`cd DIR &&`,
    `export`, assignments, `sudo`, `timeout 60`) is passed over.

    >>> command_head("cd /repo && PYTHONPATH=. python -m pytest -q tests/test_secret.py")
    'python -m pytest'
    """
    text = command[:LONGEST_COMMAND_LOOKED_AT]
    while match := _DIRECTORY_CHANGE.match(text):
        text = text[match.end() :]
    words = _COMMAND_END.split(text.strip(), maxsplit=1)[0].split()
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _PREFIX_WORDS):
        words = words[1:]
    if len(words) > 2 and words[0] == "timeout":
        words = words[2:]
    if not words:
        return None
    first = words[0].rsplit("/", 1)[-1]
    if not _PLAIN_WORD.fullmatch(first):
        return None
    rest = words[1:]
    if _PYTHON.fullmatch(first):
        module = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
        return f"{first} -m {module}" if _PLAIN_WORD.fullmatch(module) else first
    if first in _WITH_SUBCOMMAND:
        subcommand = next((word for word in rest if not word.startswith("-")), "")
        return f"{first} {subcommand}" if _PLAIN_WORD.fullmatch(subcommand) else first
    return first
