"""``python -m evalfleet`` is the same program as ``evalfleet``."""

from evalfleet.cli.main import main

if __name__ == "__main__":
    main()
