"""The commands' way to a running coordinator: where it is, one call, its errors as one line."""

import argparse
import os
from typing import Final, cast

from tao_client.semconv import DEFAULT_PORT, HEADER_PROTOCOL, PROTOCOL_VERSION
from tao_coordinator.errors import CoordinatorError

DEFAULT_ENDPOINT: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
CALL_TIMEOUT_S: Final = 10.0


class CallError(CoordinatorError):
    """The coordinator refused, or did not answer.

    Attributes:
        status: HTTP status; 0: no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def add_flags(parser: argparse.ArgumentParser) -> None:
    """`--endpoint` and `--api-key`, with their variables."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help=f"the coordinator (default the first of TAO_ENDPOINT, else {DEFAULT_ENDPOINT})",
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help="key that it asks for (default TAO_API_KEY)"
    )


class CoordinatorApi:
    """Calls one coordinator."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        given: str | None = arguments.endpoint
        named = given or os.environ.get("TAO_ENDPOINT") or DEFAULT_ENDPOINT
        # The SDK's variable may name several: the one that it prefers.
        self.endpoint = named.partition(",")[0].strip().rstrip("/")
        key: str | None = arguments.api_key or os.environ.get("TAO_API_KEY")
        self.has_key = bool(key)
        self._headers = {HEADER_PROTOCOL: PROTOCOL_VERSION}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def call(self, method: str, path: str) -> dict[str, object]:
        """One request; the JSON object of its answer, empty where there is none.

        Raises:
            CallError: No answer, or an error of the wire protocol.
        """
        import httpx2

        try:
            response = httpx2.request(
                method,
                self.endpoint + path,
                headers=self._headers,
                timeout=CALL_TIMEOUT_S,
                trust_env=False,
            )
            document: object = response.json() if response.content else {}
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise CallError(
                0, f"no coordinator answers at {self.endpoint} ({reason}): is --endpoint right?"
            ) from error
        fields = cast("dict[str, object]", document) if isinstance(document, dict) else {}
        if response.status_code >= 400:
            refusal = fields.get("error")
            told = cast("dict[str, object]", refusal) if isinstance(refusal, dict) else {}
            message = str(told.get("message", f"HTTP {response.status_code}"))
            raise CallError(response.status_code, f"{self.endpoint}: {message}")
        return fields
