"""`/` for people and `/tao/v1/overview` behind it.

The page itself is open like a login page: it holds no data and asks for the key. Its scripts and
styles are its own and named by their digests, so that a browser runs nothing else.
"""

import base64
import hashlib
import re
import time
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tao_coordinator.service.dashboard.overview import overview
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.runtime import Runtime
from tao_coordinator.service.view_routes import ENDPOINTS, installed_version

AGE_S_MAX: Final = 0.5
"""All viewers share one look at the engine for this long."""


class DashboardRoutes:
    """Serves the page and its document."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._version = installed_version()
        self._page = files(__package__ or "").joinpath("page.html").read_text(encoding="utf-8")
        self._headers = {
            "cache-control": "no-store",
            "content-security-policy": _content_security_policy(self._page),
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
        }
        self._document: Response | None = None
        self._document_at_s = 0.0

    def routes(self) -> list[Route]:
        """Both."""
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/tao/v1/overview", self.overview, methods=["GET"]),
        ]

    async def page(self, request: Request) -> Response:
        """`GET /`: the dashboard for browsers, a list of endpoints for anything else."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(self._page, headers=self._headers, media_type="text/html")
        return json_response(
            {"service": "tao-coordinator", "version": self._version, "endpoints": ENDPOINTS}
        )

    async def overview(self, request: Request) -> Response:
        """`GET /tao/v1/overview`: what the page shows."""
        now_s = time.monotonic()
        if self._document is None or now_s - self._document_at_s > AGE_S_MAX:
            document = {"version": self._version, **overview(self._runtime)}
            self._document = json_response(document)
            self._document_at_s = now_s
        return self._document


def _content_security_policy(page: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(page, 'script')}",
            f"style-src {_digest(page, 'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _digest(page: str, tag: str) -> str:
    """How a policy names the page's one inline element `tag`."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
