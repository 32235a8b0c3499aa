"""The page: self-contained, allowed to run only its own script, open while its data is not."""

import base64
import hashlib
import re

from service_fakes import Reply, call

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def page(api_key: str | None = None) -> Reply:
    return call("GET", "/", headers=BROWSER, api_key=api_key)


def test_browser_gets_the_page_and_programs_the_list() -> None:
    assert page().headers["content-type"].startswith("text/html")
    assert call("GET", "/").json()["service"] == "tao-coordinator"


def test_page_needs_nothing_from_elsewhere() -> None:
    html = page().body.decode()
    assert not re.findall(r"""(?:src|href|url|import)\s*[=(]\s*["'](?!data:)""", html)
    assert not re.findall(r"https?://(?!HOST)", html), "no address of anybody else"
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)
    assert not re.findall(r"""<[^>]+\s(?:on\w+|style)\s*=""", html), "the policy would refuse it"


def test_policy_names_the_pages_own_script_and_style() -> None:
    reply = page()
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", reply.body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert reply.headers["cache-control"] == "no-store"


def test_page_is_open_and_its_data_is_not() -> None:
    assert page(api_key="secret").status == 200
    assert call("GET", "/tao/v1/overview", api_key="secret").status == 401
    authorization = {"authorization": "Bearer secret"}
    assert call("GET", "/tao/v1/overview", headers=authorization, api_key="secret").status == 200


def test_page_asks_for_paths_that_exist() -> None:
    html = page().body.decode()
    asked = set(re.findall(r'get\("([^"]+)"', html))
    assert asked == {"tao/v1/overview", "tao/v1/plans/"}
    assert call("GET", "/tao/v1/overview").status == 200
    assert call("GET", "/tao/v1/plans/1").json()["error"]["type"] == "unknown_plan"
