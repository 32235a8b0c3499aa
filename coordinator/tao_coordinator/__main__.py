"""`python -m tao_coordinator` is the same program as `tao`."""

from tao_coordinator.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
