"""Each gateway's documented way of being told an engine, and of telling which one it took."""

import base64

import pytest

from tao_coordinator.adapters.gateways import SESSION, Affinity, affinity_of
from tao_coordinator.config import GATEWAYS, BackendConfig
from tao_coordinator.errors import ConfigurationError


def affinity(**settings: object) -> Affinity:
    return affinity_of(
        BackendConfig(backend_id="b", base_url="http://gateway", **settings)  # pyright: ignore
    )


@pytest.mark.parametrize(
    ("gateway", "target", "header", "headers"),
    [
        # echo -n default/llm-0 | base64
        ("llm-d", "default/llm-0", None, {"x-session-token": "ZGVmYXVsdC9sbG0tMA=="}),
        # echo -n 10.0.0.1:8000 | base64
        (
            "aibrix",
            "10.0.0.1:8000",
            None,
            {"routing-strategy": "session-affinity", "x-session-id": "MTAuMC4wLjE6ODAwMA=="},
        ),
        (
            "dynamo",
            "7587886400000000001",
            None,
            {"x-dynamo-worker-instance-id": "7587886400000000001", "x-dynamo-session-id": SESSION},
        ),
        ("envoy", "10.0.0.1:8000", None, {"x-gateway-destination-endpoint": "10.0.0.1:8000"}),
        (
            "envoy",
            "[fd00::1]:8000",
            "x-envoy-original-dst-host",
            {"x-envoy-original-dst-host": "[fd00::1]:8000"},
        ),
        ("envoy-stateful-session", "10.0.0.1:8000", "X-Pin", {"x-pin": "MTAuMC4wLjE6ODAwMA=="}),
        ("smg", "3", None, {"x-smg-target-worker": "3", "x-smg-routing-key": SESSION}),
        ("smg", None, None, {"x-smg-routing-key": SESSION}),
        ("litellm", "http://10.0.0.1:8000/v1", None, {"x-litellm-session-id": SESSION}),
        ("header", "gpu-1", "x-node", {"x-node": "gpu-1"}),
        ("session-only", None, None, {}),
        ("session-only", None, "x-user-id", {"x-user-id": SESSION}),
    ],
)
def test_headers_are_minted_as_documented(
    gateway: str, target: str | None, header: str | None, headers: dict[str, str]
) -> None:
    minted = affinity(gateway=gateway, gateway_target=target, gateway_header=header)
    assert dict(minted.headers) == headers


@pytest.mark.parametrize(
    ("gateway", "target", "seen"),
    [
        ("llm-d", "default/llm-0", ("x-session-token", base64.b64encode(b"default/llm-0"))),
        ("aibrix", "10.0.0.1:8000", ("target-pod-ip", b"10.0.0.1:8000")),
        ("aibrix", "10.0.0.1:8000", ("target-pod-ip", b"10.0.0.1")),
        ("litellm", "http://gpu-1/v1", ("x-litellm-model-api-base", b"http://gpu-1/v1")),
    ],
)
def test_who_served_is_recognised(gateway: str, target: str, seen: tuple[str, bytes]) -> None:
    served_by = affinity(gateway=gateway, gateway_target=target).served_by
    assert (seen[0], seen[1].decode()) in served_by


def test_data_parallel_rank_goes_along_with_and_without_gateway() -> None:
    assert affinity(data_parallel_rank=3).headers == (("x-data-parallel-rank", "3"),)
    pinned = affinity(gateway="dynamo", gateway_target="7", data_parallel_rank=1)
    assert dict(pinned.headers)["x-dynamo-dp-rank"] == "1"
    assert affinity() == Affinity()


@pytest.mark.parametrize(
    ("settings", "culprit"),
    [
        ({"gateway": "llm-d"}, "NAMESPACE/POD"),
        ({"gateway": "llm-d", "gateway_target": "llm-0"}, "NAMESPACE/POD"),
        ({"gateway": "aibrix", "gateway_target": "gpu"}, "IP:PORT"),
        ({"gateway": "dynamo", "gateway_target": "gpu-1"}, "number"),
        ({"gateway": "smg", "gateway_target": "http://w:1"}, "index"),
        ({"gateway": "litellm", "gateway_target": "gpu"}, "api_base"),
        ({"gateway": "header", "gateway_target": "x"}, "gateway_header"),
        ({"gateway": "envoy-stateful-session", "gateway_target": "h:1"}, "gateway_header"),
        ({"gateway": "session-only", "gateway_target": "x"}, "takes no"),
        ({"gateway": "nginx"}, "gateway must be one of"),
        ({"gateway_target": "x"}, "need gateway"),
        ({"gateway": "header", "gateway_target": "a b", "gateway_header": "h"}, "blanks"),
        ({"gateway": "header", "gateway_target": "a", "gateway_header": "h: x"}, "header"),
    ],
)
def test_what_a_gateway_cannot_be_told_is_refused(
    settings: dict[str, object], culprit: str
) -> None:
    with pytest.raises(ConfigurationError, match=culprit):
        affinity(**settings)


def test_every_gateway_of_the_configuration_has_its_row() -> None:
    for gateway in GATEWAYS:
        with pytest.raises(ConfigurationError, match=gateway):
            affinity(gateway=gateway, gateway_target="\x21" * 9 if gateway != "header" else "x")
