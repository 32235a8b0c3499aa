"""Flags and variables of `tao coordinator` as one checked configuration."""

import argparse
from collections.abc import Callable, Mapping, Sequence

import pytest

from tao_coordinator.cli import coordinator
from tao_coordinator.cli.coordinator import config_from, register, run
from tao_coordinator.config import BackendConfig, CoordinatorConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service import server

ONE = ["--backend", "http://gpu-0:8000"]


def config(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> CoordinatorConfig:
    parser = argparse.ArgumentParser(exit_on_error=False)
    register(parser.add_subparsers())
    return config_from(parser.parse_args(["coordinator", *arguments]), environment or {})


def test_defaults_are_safe() -> None:
    assert config(ONE) == CoordinatorConfig(
        backends=(BackendConfig(backend_id="gpu-0:8000", base_url="http://gpu-0:8000"),),
        host="127.0.0.1",
        port=8700,
        policy="tao",
        api_key=None,
        time_scale=1.0,
        log_level="info",
    )


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        ("", False),
        ("--host localhost", False),
        ("--host 127.0.0.7", False),
        ("--host ::1", False),
        ("--host 0.0.0.0", True),
        ("--host ::", True),
        ("--host 10.0.0.5", True),
        ("--host gpu-0", True),
        ("--host 0.0.0.0 --api-key k", False),
    ],
)
def test_coordinator_open_to_everybody_says_so(
    flags: str,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def serve(_config: object, _engine: object, on_listening: Callable[[str], None]) -> int:
        on_listening("http://here")
        return 0

    def leave_logging(_: str) -> None:
        """The suite's own stays."""

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(coordinator, "_set_up_logging", leave_logging)
    for name in ("TAO_HOST", "TAO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    assert run(parser.parse_args(["coordinator", *ONE, *flags.split()])) == 0
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == is_told
    assert all("--api-key" in one for one in warnings)


@pytest.mark.parametrize(
    ("text", "backend_id", "base_url"),
    [
        ("http://gpu-0:8000/v1", "gpu-0:8000", "http://gpu-0:8000"),
        ("http://gpu-0:8000/v1/", "gpu-0:8000", "http://gpu-0:8000"),
        ("http://gpu-0/", "gpu-0:80", "http://gpu-0"),
        ("https://gpu-0/llm/v1", "gpu-0:443", "https://gpu-0/llm"),
        ("http://[::1]:8000", "::1:8000", "http://[::1]:8000"),
        ("left=http://gpu-0:8000", "left", "http://gpu-0:8000"),
    ],
)
def test_backend_is_an_api_root_with_an_id(text: str, backend_id: str, base_url: str) -> None:
    (backend,) = config(["--backend", text]).backends
    assert (backend.backend_id, backend.base_url) == (backend_id, base_url)


def test_capacity_is_for_one_backend_or_for_all() -> None:
    flags = (
        "--backend a=http://a:1 --backend b=http://b:1"
        " --capacity 500_000 --capacity b=96000 --capacity-scale a=0.9"
    )
    backends = config(flags.split()).backends
    assert [b.capacity_tokens for b in backends] == [500_000, 96_000]
    assert [b.capacity_scale for b in backends] == [0.9, 1.0]


def test_host_tier_is_for_one_backend_or_for_all() -> None:
    flags = (
        "--backend a=http://a:1 --backend b=http://b:1 --host-tier-tokens a=2000000"
        " --host-reload-tokens-per-s a=380000.5"
    )
    backends = config(flags.split()).backends
    assert [b.host_tier_tokens for b in backends] == [2_000_000, None]
    assert [b.host_reload_tokens_per_s for b in backends] == [380_000.5, None]
    environment = {"TAO_HOST_TIER_TOKENS": "7", "TAO_HOST_RELOAD_TOKENS_PER_S": "9"}
    (backend,) = config(ONE, environment).backends
    assert (backend.host_tier_tokens, backend.host_reload_tokens_per_s) == (7, 9.0)


def test_relay_options_are_per_backend() -> None:
    flags = (
        "--backend a=http://a:1 --backend b=http://b:1 --backend c=http://c:1"
        " --backend-api-key a=k=1 --redirect b --model-alias claude-*=qwen3 --relay-idle 30"
    )
    made = config(flags.split())
    assert [b.api_key for b in made.backends] == ["k=1", None, None]
    assert [b.redirect for b in made.backends] == [False, True, False]
    assert made.model_aliases == (("claude-*", "qwen3"),)
    assert made.relay_idle_s == 30.0
    everywhere = config(
        ["--backend", "a=http://a:1", "--backend", "b=http://b:1"],
        {"TAO_BACKEND_API_KEY": "*=all,a=own", "TAO_MODEL_ALIAS": "x=y z=y"},
    )
    assert [b.api_key for b in everywhere.backends] == ["own", "all"]
    assert everywhere.model_aliases == (("x", "y"), ("z", "y"))
    assert "own" not in repr(everywhere)


def test_flags_win_over_variables() -> None:
    environment = {
        "TAO_BACKENDS": "http://env-a:1, b=http://env-b:2",
        "TAO_HOST": "0.0.0.0",
        "TAO_PORT": "9000",
        "TAO_POLICY": "round-robin",
        "TAO_CAPACITY": "b=5000",
        "TAO_CAPACITY_SCALE": "0.5",
        "TAO_API_KEY": "from-env",
        "TAO_TIME_SCALE": "10",
        "TAO_LOG_LEVEL": "DEBUG",
    }
    by_environment = config([], environment)
    assert [b.backend_id for b in by_environment.backends] == ["env-a:1", "b"]
    assert [b.capacity_tokens for b in by_environment.backends] == [None, 5000]
    assert [b.capacity_scale for b in by_environment.backends] == [0.5, 0.5]
    assert (by_environment.host, by_environment.port) == ("0.0.0.0", 9000)
    assert (by_environment.policy, by_environment.api_key) == ("round-robin", "from-env")
    assert (by_environment.time_scale, by_environment.log_level) == (10.0, "debug")
    by_flags = config(
        [*ONE, "--port", "0", "--policy", "tao", "--api-key", "k", "--capacity", "7"], environment
    )
    assert (by_flags.port, by_flags.policy, by_flags.api_key) == (0, "tao", "k")
    assert [b.capacity_tokens for b in by_flags.backends] == [7]


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ([], "--backend"),
        (["--backend", "gpu-0:8000"], "http"),
        (["--backend", "ftp://gpu-0"], "http"),
        (["--backend", "http://"], "host"),
        (["--backend", "http://gpu-0:notaport"], "notaport"),
        (["--backend", "http://gpu-0:99999"], "99999|range"),
        (["--backend", "http://user:secret@gpu-0"], "credentials"),
        (["--backend", "http://gpu-0/?x=1"], "query"),
        (["--backend", "a b=http://gpu-0"], "a b"),
        ([*ONE, *ONE], "gpu-0:8000"),
        ([*ONE, "--backend", "http://gpu-0:8000/other"], "ID=URL"),
        ([*ONE, "--engine", "ollama"], "--engine"),
        ([*ONE, "--engine", "other=vllm"], "other"),
        ([*ONE, "--data-parallel-ranks", "0"], "data_parallel_ranks"),
        ([*ONE, "--data-parallel-ranks", "two"], "--data-parallel-ranks"),
        (["--backend", "dns+https://gpu"], "certificates"),
        (["--backend", "dns+http://"], "host"),
        ([*ONE, "--capacity", "many"], "--capacity"),
        ([*ONE, "--capacity", "0"], "--capacity"),
        ([*ONE, "--capacity", "-5"], "--capacity"),
        ([*ONE, "--capacity", "other=5"], "other"),
        ([*ONE, "--capacity-scale", "0"], "--capacity-scale"),
        ([*ONE, "--capacity-scale", "nan"], "--capacity-scale"),
        ([*ONE, "--host-tier-tokens", "5"], "go together"),
        ([*ONE, "--host-reload-tokens-per-s", "5"], "go together"),
        ([*ONE, "--host-tier-tokens", "many"], "--host-tier-tokens"),
        ([*ONE, "--host-tier-tokens", "0", "--host-reload-tokens-per-s", "5"], "1..10+, got 0"),
        ([*ONE, "--host-tier-tokens", "5", "--host-reload-tokens-per-s", "0"], "got 0.0"),
        ([*ONE, "--host-tier-tokens", "5", "--host-reload-tokens-per-s", "nan"], "got nan"),
        ([*ONE, "--host-tier-tokens", "other=5"], "other"),
        ([*ONE, "--port", "70000"], "--port"),
        ([*ONE, "--port", "http"], "--port"),
        ([*ONE, "--host", ""], "--host"),
        ([*ONE, "--api-key", ""], "--api-key must not be empty"),
        ([*ONE, "--state-dir", ""], "--state-dir must not be empty"),
        ([*ONE, "--backends-file", ""], "--backends-file must not be empty"),
        ([*ONE, "--backend", "b=http://gpu-0:8000/v1"], "is backend gpu-0:8000 already"),
        ([*ONE, "--api-key", "schlüssel"], "--api-key"),
        ([*ONE, "--time-scale", "0"], "--time-scale"),
        ([*ONE, "--time-scale", "fast"], "--time-scale"),
        ([*ONE, "--log-level", "loud"], "--log-level"),
        ([*ONE, "--backend-api-key", "k"], "ID=KEY"),
        ([*ONE, "--backend-api-key", "*=schlüssel"], "--backend-api-key"),
        ([*ONE, "--backend-api-key", "other=k"], "other"),
        ([*ONE, "--redirect", "other"], "other"),
        ([*ONE, "--redirect", "*", "--backend-api-key", "*=k"], "choose one"),
        ([*ONE, "--model-alias", "qwen3"], "PATTERN=MODEL"),
        ([*ONE, "--model-alias", "*=qwen3"], "outside"),
        ([*ONE, "--relay-idle", "0"], "--relay-idle"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_flag(arguments: list[str], culprit: str) -> None:
    with pytest.raises(ConfigurationError, match=culprit):
        config(arguments)


def test_key_is_in_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config([*ONE, "--api-key", "gehörtmir"])
    assert "gehört" not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        config(["--backend", "http://user:secret@gpu-0"])
    assert "secret" not in str(caught.value)


def test_ranks_and_kinds_are_per_backend() -> None:
    made = config(
        [
            *("--backend", "a=http://gpu-0:8000", "--backend", "b=http://gpu-1:8000"),
            *("--data-parallel-ranks", "a=2", "--engine", "b=sglang"),
        ]
    )
    assert [(b.backend_id, b.data_parallel_rank, b.engine_kind) for b in made.backends] == [
        ("a-dp0", 0, "auto"),
        ("a-dp1", 1, "auto"),
        ("b", None, "sglang"),
    ]


def test_name_of_many_addresses_is_no_backend_of_its_own() -> None:
    made = config(["--backend", "pool=dns+http://engines:8000/v1", "--capacity", "pool=500"])
    (dns,) = made.dns_backends
    assert made.backends == ()
    assert dns.name == "pool"
    assert dns.templates[0].base_url == "http://engines:8000"
    assert dns.templates[0].capacity_tokens == 500
    assert config(["--backend", "dns+http://engines"]).dns_backends[0].name == ""


def test_file_alone_is_enough() -> None:
    assert config(["--backends-file", "f.toml"]).backends_file == "f.toml"
