"""What a process has used so far, where the system tells."""

import os
import sys
from pathlib import Path


def cpu_s(pid: int) -> float | None:
    """CPU seconds of a process; `None` where there is no `/proc`, or no such process."""
    if sys.platform == "win32":
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain blanks; utime and stime are fields 14 and 15.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb() -> float | None:
    """The most memory that this process has had at a time; `None` where it is not told."""
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024**2 if sys.platform == "darwin" else 1024)
