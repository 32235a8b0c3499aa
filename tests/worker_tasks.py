"""Tasks for worker processes, in a module that they can import."""

import os
import signal
import time

if "INTERRUPT_AT_IMPORT" in os.environ:
    os.kill(os.getpid(), signal.SIGINT)


def perform(task: str) -> str:
    """What the task says: fail, die, hang, or answer with its process."""
    what, _, rest = task.partition(":")
    if what == "fail":
        raise ValueError(f"{rest}\nsecond line")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(600.0)
    if what == "slow":
        time.sleep(0.3)
    return f"{rest} by {os.getpid()}"
