"""Which coordinator the commands speak to."""

import argparse

import pytest

from tao_coordinator.cli.coordinator_api import DEFAULT_ENDPOINT, CoordinatorApi


@pytest.mark.parametrize(
    ("flag", "variable", "endpoint"),
    [
        (None, None, DEFAULT_ENDPOINT),
        (None, "http://a:8700/", "http://a:8700"),
        (None, "http://a:8700, http://b:8700", "http://a:8700"),
        ("http://c:8700", "http://a:8700", "http://c:8700"),
    ],
)
def test_flag_wins_over_the_variable_of_which_the_first_counts(
    monkeypatch: pytest.MonkeyPatch, flag: str | None, variable: str | None, endpoint: str
) -> None:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    if variable is not None:
        monkeypatch.setenv("TAO_ENDPOINT", variable)
    api = CoordinatorApi(argparse.Namespace(endpoint=flag, api_key=None))
    assert api.endpoint == endpoint
