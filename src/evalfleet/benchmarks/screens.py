"""The screens and guests of hosts that are ready for a benchmark."""

from __future__ import annotations

from msgspec import to_builtins

from evalfleet.benchmarks import registry
from evalfleet.benchmarks.base import Guests, HasGuests, Screen, ShowsScreen
from evalfleet.config import Settings
from evalfleet.errors import InputError
from evalfleet.model import JsonObject


def screen_of(name: str, settings: Settings) -> Screen | None:
    """Return the screen of hosts of that benchmark; None where they show none."""
    try:
        benchmark = registry.find(name, settings)
    except InputError:
        return None  # a package that was removed, or is broken
    return benchmark.screen if isinstance(benchmark, ShowsScreen) else None


def guests_of(name: str, settings: Settings) -> Guests | None:
    """Return the guests of hosts of that benchmark; None where they have none."""
    try:
        benchmark = registry.find(name, settings)
    except InputError:
        return None  # a package that was removed, or is broken
    return benchmark.guests if isinstance(benchmark, HasGuests) else None


def guest_orders(guests: Guests, limit_s: float) -> JsonObject:
    """Return what a visitor asks a host for to learn how its guests are. Docker and the guest have `limit_s` each."""
    return {"do": "guests", "limit_s": limit_s, **to_builtins(guests)}


def picture_orders(screen: Screen | None, container: str | None = None) -> JsonObject:
    """Return what a visitor asks a host for to get a picture of its screen, or else of an attempt that runs there."""
    return {
        "do": "picture",
        "docker": screen.docker if screen else "docker",
        "containers": [container] if container else list(screen.containers) if screen else [],
        "python": screen.python if screen else "python",
        "url": screen.url if screen else "",
    }


def first_screen(settings: Settings) -> Screen | None:
    """Return the screen of the first benchmark that has one, for hosts of which no benchmark is known."""
    return next((screen for name in registry.names() if (screen := screen_of(name, settings))), None)
