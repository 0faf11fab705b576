"""The version of the package that is installed."""

from __future__ import annotations


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("evalfleet")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+source"
