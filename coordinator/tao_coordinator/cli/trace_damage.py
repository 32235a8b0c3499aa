"""What is said of the rows and files of a trace that could not be read."""

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tao_coordinator.traces.records import Skipped

SHOWN_MAX: Final = 3


def tell_skipped(skipped: "Skipped") -> None:
    """One warning with the first few of them; nothing where all were read."""
    if not skipped.count:
        return
    shown = [_shown(message) for message in skipped.messages[:SHOWN_MAX]]
    more = "; ..." if skipped.count > len(shown) else ""
    print(f"tao: left out as damaged: {skipped.count} ({'; '.join(shown)}{more})", file=sys.stderr)


def _shown(message: str) -> str:
    """What is quoted of a file may not steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in message[:200])
