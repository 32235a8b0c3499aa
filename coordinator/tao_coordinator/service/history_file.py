"""What was learned about durations, kept across restarts in one file of the state directory.

Nothing else survives yet: sessions, seats and caches are learned anew within minutes, durations of
tools take hours. The file is replaced whole and at once, so that a crash leaves the old or the new
one; a damaged one is set aside with one warning, never a reason not to start. It holds tool keys
and counts, no session, no argument, no output.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

import orjson

from tao_coordinator.errors import ConfigurationError

_log = logging.getLogger(__name__)

FILE_NAME: Final = "durations.json"
SAVE_INTERVAL_S: Final = 60.0
"""An export of full tables takes about 50 ms of the event loop: not more often."""
FILE_BYTES_MAX: Final = 64 * 1024 * 1024


class HistoryFile:
    """Loads at start, saves now and then and at the end."""

    def __init__(self, state_dir: Path) -> None:
        """Make the directory.

        Raises:
            ConfigurationError: it cannot be made or written to.
        """
        self.path = state_dir / FILE_NAME
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"--state-dir {state_dir}: {error.strerror or error}"
            ) from error
        if not os.access(state_dir, os.W_OK):
            raise ConfigurationError(f"--state-dir {state_dir}: cannot be written to")

    def load(self, merge: Callable[[Mapping[str, object]], None]) -> bool:
        """Give `merge` what an earlier process has learned; false when there is nothing usable."""
        try:
            if self.path.stat().st_size > FILE_BYTES_MAX:
                raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
            document: object = orjson.loads(self.path.read_bytes())
            if not isinstance(document, dict):
                raise ValueError("no JSON object")
            merge(cast("dict[str, object]", document))
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            _log.warning("%s is not readable (%s): starting without it", self.path, error)
            with contextlib.suppress(OSError):
                self.path.replace(self.path.with_suffix(".damaged"))
            return False
        return True

    def save(self, learned: Mapping[str, object]) -> None:
        """Replace the file; a failure is logged, the old one stays."""
        fresh = self.path.with_suffix(".new")
        try:
            fresh.write_bytes(orjson.dumps(learned))
            fresh.replace(self.path)
        except OSError as error:
            _log.warning("%s was not saved: %s", self.path, error.strerror or error)

    async def keep(self, export: Callable[[], Mapping[str, object]]) -> None:
        """Save every minute until cancelled. The disk is waited for in a thread."""
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            await asyncio.to_thread(self.save, export())
