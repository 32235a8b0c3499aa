"""`--seeds`, as `tao study` and `tao replay` take it."""

from tao_coordinator.errors import ConfigurationError


def read_seeds(text: str) -> tuple[int, ...]:
    """Numbers with commas.

    Raises:
        ConfigurationError: They are none, or one comes twice: it would count as evidence twice.
    """
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"--seeds {text}: numbers with commas") from None
    if len(set(seeds)) < len(seeds):
        raise ConfigurationError(f"--seeds {text}: each may come once")
    return seeds
