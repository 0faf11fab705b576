"""Benchmarks by name: the built-in ones, and those of other packages by the entry point group `evalfleet.benchmarks`.

Nothing is imported before it is asked for by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalfleet import plugins
from evalfleet.benchmarks.base import Benchmark
from evalfleet.config import Settings
from evalfleet.errors import InputError


def names() -> list[str]:
    return sorted(plugins.names(plugins.BENCHMARKS))


def is_known(name: str) -> bool:
    return plugins.is_known(plugins.BENCHMARKS, name)


def needs_kvm(name: str | None) -> bool:
    """Whether machines for that benchmark need KVM: its class says so with `needs_kvm = True`."""
    return bool(_declared(name, "needs_kvm"))


def container_of(name: str | None) -> str | None:
    """Return the container in which that benchmark runs by default, where its class names one as `container`."""
    return _declared(name, "container")


def container_images(name: str | None, settings: Settings) -> tuple[str, ...]:
    """The images that a machine needs for that benchmark, as it says itself by `container_images`."""
    if name is None or not is_known(name):
        return ()
    return tuple(getattr(find(name, settings), "container_images", ()))


def _declared(name: str | None, attribute: str) -> Any:
    """Return what a benchmark's class says of itself; None for a benchmark that is not installed."""
    if name is None:
        return None
    if name in plugins.BUILT_IN[plugins.BENCHMARKS]:
        return getattr(plugins.built_in(plugins.BENCHMARKS, name), attribute, None)
    point = plugins.installed(plugins.BENCHMARKS).get(name)
    return None if point is None else getattr(point.load(), attribute, None)


def find(name: str, settings: Settings) -> Benchmark:
    """Make the benchmark of that name; its class, or whatever makes it, takes the machine's settings.

    Raises:
        InputError: there is none, or the package that brings it cannot be imported.
    """
    make: Callable[[Settings], Benchmark]
    if name in plugins.BUILT_IN[plugins.BENCHMARKS]:
        make = plugins.built_in(plugins.BENCHMARKS, name)
        return make(settings)
    plugin = plugins.installed(plugins.BENCHMARKS).get(name)
    if plugin is None:
        from evalfleet.validation import sentence, suggestion

        raise InputError(sentence(f"there is no benchmark {name!r}{suggestion(name, names())}"))
    try:
        make = plugin.load()
        return make(settings)
    except Exception as error:
        raise InputError(
            f"benchmark {name!r}: {plugin.value} cannot be loaded: {type(error).__name__}: {error}."
        ) from error
