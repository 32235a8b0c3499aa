"""`--backend dns+http://name:port`: one backend per address that the name resolves to.

The name is resolved again every few seconds. An answer that fails or is empty keeps the old set; an
address is given up only after it was missing from several answers in a row, since many servers
return a changing part of a long list.
"""

import asyncio
import dataclasses
import ipaddress
import logging
import random
import socket
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from tao_coordinator.config import BackendConfig, DnsConfig

_log = logging.getLogger(__name__)

RESOLVE_INTERVAL_S: Final = 10.0
RESOLVE_TIMEOUT_S: Final = 5.0
ADDRESSES_MAX: Final = 1_024
MISSING_MAX: Final = 3
"""Good answers in a row without an address that make it leave."""


class DnsBackends:
    """Watches one name. Everything but id and URL of its backends is the template's."""

    def __init__(self, config: DnsConfig) -> None:
        parts = urlsplit(config.templates[0].base_url)
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.source = f"dns {self.host}"
        self._config = config
        self._path = parts.path
        self._missing: dict[str, int] = {}
        """By known address: good answers in a row without it."""
        self._has_warned = False

    async def resolve(self) -> Sequence[BackendConfig] | None:
        """The backends as of now; `None`: no usable answer, keep what is there."""
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                answers = await asyncio.get_running_loop().getaddrinfo(
                    self.host, self.port, type=socket.SOCK_STREAM
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            self._warn(str(error) or f"no answer within {RESOLVE_TIMEOUT_S:g} s")
            return None
        found = dict.fromkeys(str(answer[4][0]) for answer in answers)
        addresses = [address for address in found if _is_usable(address)][:ADDRESSES_MAX]
        if not addresses:
            self._warn("an empty answer")
            return None
        self._has_warned = False
        for address in self._missing:
            self._missing[address] += 1
        self._missing.update(dict.fromkeys(addresses, 0))
        self._missing = {a: n for a, n in self._missing.items() if n < MISSING_MAX}
        return [
            self._backend(template, address)
            for address in sorted(self._missing)
            for template in self._config.templates
        ]

    async def watch(self, follow: Callable[[Sequence[BackendConfig]], None]) -> None:
        """Resolve for ever and give every answer to `follow`."""
        while True:
            await asyncio.sleep(RESOLVE_INTERVAL_S * random.uniform(0.9, 1.1))
            backends = await self.resolve()
            if backends is not None:
                follow(backends)

    def _backend(self, template: BackendConfig, address: str) -> BackendConfig:
        host = f"[{address}]" if ":" in address else address
        prefix = f"{self._config.name}-" if self._config.name else ""
        rank = template.data_parallel_rank
        suffix = "" if rank is None else f"-dp{rank}"
        return dataclasses.replace(
            template,
            backend_id=f"{prefix}{address}:{self.port}{suffix}",
            base_url=f"http://{host}:{self.port}{self._path}",
        )

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s: %s: the backends stay as they are", self.source, reason)


def _is_usable(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False  # a scoped address, which no URL can hold
    return "%" not in address
