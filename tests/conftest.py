"""Options of the whole suite."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# Machines differ in speed and CI shares its cores: how long an example takes is not the test.
settings.register_profile("tao", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tao")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background of a shell without job control, which hands this down to the children
    # that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="replay one seed of the fault simulation (tests/simulation/test_faults.py)",
    )
