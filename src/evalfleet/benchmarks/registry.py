"""Benchmarks by name: the built-in ones, and those of other packages by the entry point group `evalfleet.benchmarks`.

Nothing is imported before it is asked for by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evalfleet.benchmarks.base import Benchmark
from evalfleet.config import Settings
from evalfleet.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "evalfleet.benchmarks"
BUILT_IN = {
    "desk": "evalfleet.benchmarks.desk.benchmark:Desk",
    "miniwob": "evalfleet.benchmarks.miniwob.benchmark:Miniwob",
    "waa": "evalfleet.benchmarks.waa.benchmark:Waa",
}


def names() -> list[str]:
    return sorted({*BUILT_IN, *_plugins()})


def is_known(name: str) -> bool:
    return name in BUILT_IN or name in _plugins()


def find(name: str, settings: Settings) -> Benchmark:
    """Make the benchmark of that name; its class, or whatever makes it, takes the machine's settings.

    Raises:
        InputError: there is none, or the package that brings it cannot be imported.
    """
    make: Callable[[Settings], Benchmark]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        make = getattr(import_module(module), attribute)
        return make(settings)
    plugin = _plugins().get(name)
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


def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found: Any = entry_points(group=GROUP)
    return {point.name: point for point in found}
