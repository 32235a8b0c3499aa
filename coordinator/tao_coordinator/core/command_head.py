"""The part of a command line that says what kind of command it is; never an argument.

The same rule as the SDK's (`tao_client`), which emits heads as `tao.tool.key`: traces, hooks and
live events must name the same keys. The two packages may not import each other; a test holds them
together.
"""

import re

_LOOKED_AT_MAX = 1000
_WITH_SUBCOMMAND = frozenset(
    {"git", "pip", "pip3", "uv", "npm", "pnpm", "yarn", "cargo", "go", "make", "docker", "kubectl"}
)
_PREFIX_WORDS = frozenset({"sudo", "time", "nohup", "env", "exec", "command"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_PYTHON = re.compile(r"python[0-9.]*")
_PREPARATION = re.compile(r"\s*(?:cd|pushd|source|\.|export|set)\s[^&;|\n]*(?:&&|;|\n)")
_COMMAND_END = re.compile(r"[|&;\n<>()`]|\$\(")


def command_head(command: str) -> str:
    """First word without its path, plus the module of `python -m` or a sub-command.

    >>> command_head("cd /repo && PYTHONPATH=. python -m pytest -q tests/test_secret.py")
    'python -m pytest'

    Returns:
        The head; empty where there is none that is surely no argument.
    """
    text = command[:_LOOKED_AT_MAX]
    while match := _PREPARATION.match(text):
        text = text[match.end() :]
    words = _COMMAND_END.split(text.strip(), maxsplit=1)[0].split()
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _PREFIX_WORDS):
        words = words[1:]
    if len(words) > 2 and words[0] == "timeout":
        words = words[2:]
    if not words:
        return ""
    first = words[0].rsplit("/", 1)[-1]
    if not _PLAIN_WORD.fullmatch(first):
        return ""
    rest = words[1:]
    if _PYTHON.fullmatch(first):
        second = rest[1] if len(rest) > 1 and rest[0] == "-m" else ""
        return f"{first} -m {second}" if _PLAIN_WORD.fullmatch(second) else first
    if first in _WITH_SUBCOMMAND:
        second = next((word for word in rest if not word.startswith("-")), "")
        return f"{first} {second}" if _PLAIN_WORD.fullmatch(second) else first
    return first
