"""`--backends-file`: a file of backends that is read again whenever it changes.

TOML with one `[[backend]]` table each, or JSON lines (a name that ends in `.jsonl`) with one object
each; keys as in `backend_settings`. Replacing the file atomically is best. A file that is broken,
empty, unreadable or still being written keeps the old set: it counts only once two reads in a row
have found the same content, and a fleet is never drained by an empty file.
"""

import asyncio
import logging
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

import orjson

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.backend_settings import backends_of

_log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
LOOK_INTERVAL_S: Final = 1.0
READ_TIMEOUT_S: Final = 5.0


class BackendsFile:
    """Reads and watches one file."""

    def __init__(self, path: Path) -> None:
        """Read it for the first time.

        Raises:
            ConfigurationError: It cannot be read or understood, or holds no backend.
        """
        self.path = path
        self.source = f"file {path.name}"
        self._is_missing = False
        try:
            self._followed = self._read()
        except OSError as error:
            raise ConfigurationError(
                f"--backends-file {path}: {error.strerror or error}"
            ) from error
        self._seen = self._followed
        self.first = self._parse(self._followed)
        """The backends in it at the start."""

    async def watch(self, follow: Callable[[Sequence[BackendConfig]], None]) -> None:
        """Look at it for ever and give every new good set to `follow`."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    content = await asyncio.to_thread(self._read)
            except (OSError, TimeoutError) as error:
                if not self._is_missing:
                    self._is_missing = True
                    _log.warning(
                        "%s cannot be read (%s): the backends stay as they are", self.path, error
                    )
                continue
            self._is_missing = False
            self._look(content, follow)

    def _look(self, content: bytes, follow: Callable[[Sequence[BackendConfig]], None]) -> None:
        is_settled = content == self._seen
        self._seen = content
        if not is_settled or content == self._followed:
            return
        self._followed = content
        try:
            backends = self._parse(content)
        except ConfigurationError as error:
            _log.warning("%s: the backends stay as they are", error)
            return
        follow(backends)

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise OSError(f"larger than {FILE_BYTES_MAX} bytes")
        return content

    def _parse(self, content: bytes) -> tuple[BackendConfig, ...]:
        try:
            return parse(content, is_json_lines=self.path.suffix == ".jsonl")
        except ConfigurationError as error:
            raise ConfigurationError(f"--backends-file {self.path}: {error}") from error


def parse(content: bytes, *, is_json_lines: bool) -> tuple[BackendConfig, ...]:
    """All backends of a file, in order.

    Raises:
        ConfigurationError: Not readable, no backend at all, or two of one id; says where.
    """
    tables = _json_lines(content) if is_json_lines else _toml(content)
    backends: dict[str, BackendConfig] = {}
    for number, (where, table) in enumerate(tables, start=1):
        if not isinstance(table, dict):
            raise ConfigurationError(f"{where}: backend {number} is no table")
        try:
            found = backends_of(cast("dict[str, object]", table))
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        for backend in found:
            if backend.backend_id in backends:
                raise ConfigurationError(
                    f"{where}: two backends are called {backend.backend_id!r}: give backend_id"
                )
            backends[backend.backend_id] = backend
    if not backends:
        raise ConfigurationError("holds no backend (to take one out of service: tao drain ID)")
    return tuple(backends.values())


def _json_lines(content: bytes) -> list[tuple[str, object]]:
    tables: list[tuple[str, object]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            tables.append((f"line {number}", orjson.loads(line)))
        except orjson.JSONDecodeError as error:
            raise ConfigurationError(f"line {number} is no JSON: {error}") from error
    return tables


def _toml(content: bytes) -> list[tuple[str, object]]:
    try:
        document: dict[str, object] = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"is no TOML: {error}") from error
    unknown = sorted(document.keys() - {"backend"})
    if unknown:
        raise ConfigurationError(f"unknown key {unknown[0]!r}; only [[backend]] tables are read")
    tables = document.get("backend", [])
    if not isinstance(tables, list):
        raise ConfigurationError("write [[backend]], in two brackets, before each backend")
    listed = cast("list[object]", tables)
    return [(f"[[backend]] {number}", table) for number, table in enumerate(listed, start=1)]
