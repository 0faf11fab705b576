"""Telemetry of a controller: while it drives a run, the run's events go to a collector."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evalfleet.config import environment

if TYPE_CHECKING:
    from evalfleet.config import Settings

_SIGNS = ("OTEL_EXPORTER_OTLP_ENDPOINT", *(f"OTEL_EXPORTER_OTLP_{of}_ENDPOINT" for of in ("TRACES", "METRICS", "LOGS")))


@contextmanager
def telemetry_beside(settings: Settings, run_id: str, notice: Callable[[str], None]) -> Generator[None]:
    """Send in a thread of its own while the block runs; at its end send what is new, for a few seconds at most.

    Does nothing, and loads nothing, where neither [otel] nor a variable names an endpoint. Never ends the block with an error,
    and never waits for a collector that does not answer.
    """
    if settings.otel.endpoint is None and not any(environment().get(name) for name in _SIGNS):
        yield
        return
    from evalfleet.daemon.otel.destination import destination_of

    try:
        from evalfleet.daemon.otel.exporter import Exporter

        destination = destination_of(settings.otel, environment())
    except ImportError:
        notice("telemetry: none is sent: opentelemetry-proto is missing; `pip install 'evalfleet[otel]'` installs it")
        yield
        return
    except ValueError as error:
        notice(f"telemetry: none is sent: {error}")
        yield
        return
    if not destination.signals:
        yield
        return
    exporter = Exporter(settings.home, destination, run_id, notice)
    exporter.start()
    try:
        yield
    finally:
        exporter.finish()
