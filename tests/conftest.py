"""Options of the whole suite."""

import pytest
from hypothesis import HealthCheck, settings

# Machines differ in speed and CI shares its cores: how long an example takes is not the test.
settings.register_profile("tao", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tao")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="replay one seed of the fault simulation (tests/simulation/test_faults.py)",
    )
