"""Where telemetry goes: the settings, and the variables that all programs with OpenTelemetry share."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from evalfleet.config.core_tables import OTEL_SIGNALS, OtelSettings

_TIMEOUT_S = 10.0


class Endpoint(Struct, frozen=True, kw_only=True):
    """Of one signal. Its headers may hold a token: they are shown by no repr and in no message."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    gzip: bool

    def __repr__(self) -> str:
        return f"Endpoint({self.shown})"

    @property
    def shown(self) -> str:
        """The address for people: without user, password and query, which may hold a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Destination(Struct, frozen=True, kw_only=True):
    signals: Mapping[str, Endpoint]  # those that are sent
    resource: Mapping[str, str]
    interval_s: float


def destination_of(settings: OtelSettings, environ: Mapping[str, str]) -> Destination:
    """Variables count more than settings. Raises ValueError for what cannot be used."""
    found: dict[str, Endpoint] = {}
    for signal in OTEL_SIGNALS:
        if _is_off(signal, settings, environ):
            continue
        own, base = _of(environ, signal, "ENDPOINT"), environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or settings.endpoint
        url = own or (f"{base.rstrip('/')}/v1/{signal}" if base else None)
        if url is not None:
            found[signal] = _endpoint(signal, url, environ)
    resource = {
        "service.name": environ.get("OTEL_SERVICE_NAME") or settings.service_name,
        **_pairs("OTEL_RESOURCE_ATTRIBUTES", environ.get("OTEL_RESOURCE_ATTRIBUTES", "")),
    }
    if environ.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = environ["OTEL_SERVICE_NAME"]
    interval = environ.get("OTEL_METRIC_EXPORT_INTERVAL")
    interval_s = settings.interval_s if interval is None else _number("OTEL_METRIC_EXPORT_INTERVAL", interval) / 1000
    return Destination(signals=found, resource=resource, interval_s=max(1.0, interval_s))


def _is_off(signal: str, settings: OtelSettings, environ: Mapping[str, str]) -> bool:
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return disabled or signal not in settings.signals or environ.get(f"OTEL_{signal.upper()}_EXPORTER") == "none"


def _endpoint(signal: str, url: str, environ: Mapping[str, str]) -> Endpoint:
    protocol = _of(environ, signal, "PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; evalfleet speaks http/protobuf, often on port 4318"
        )
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("an endpoint must begin with http:// or https://")
    name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS"
    headers = environ.get(name) or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    timeout = _of(environ, signal, "TIMEOUT") or environ.get("OTEL_EXPORTER_OTLP_TIMEOUT")
    compression = _of(environ, signal, "COMPRESSION") or environ.get("OTEL_EXPORTER_OTLP_COMPRESSION") or "none"
    return Endpoint(
        url=url,
        headers=_pairs("OTEL_EXPORTER_OTLP_HEADERS", headers),
        timeout_s=_TIMEOUT_S if timeout is None else _number("OTEL_EXPORTER_OTLP_TIMEOUT", timeout) / 1000,
        gzip=compression == "gzip",
    )


def _of(environ: Mapping[str, str], signal: str, what: str) -> str | None:
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}") or None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} is not a number of milliseconds") from None


def _pairs(name: str, text: str) -> dict[str, str]:
    """`a=b,c=d`, where values may be quoted as in an address. The text may hold a token: it is not told."""
    found: dict[str, str] = {}
    for pair in filter(None, (one.strip() for one in text.split(","))):
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise ValueError(f"{name} is not of the form name=value,name=value")
        found[key.strip()] = unquote(value.strip())
    return found
