"""Where telemetry goes, and what becomes of what a collector does not take."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.collector import Collector, collecting

from evalfleet.config.core_tables import OtelSettings
from evalfleet.daemon.otel import channel as channels
from evalfleet.daemon.otel.channel import Channel, Sent
from evalfleet.daemon.otel.destination import Endpoint, destination_of
from evalfleet.daemon.otel.messages import trace_request

FILE = OtelSettings(endpoint="http://file:4318/")
BODY = trace_request([], {})


def urls(settings: OtelSettings, **environ: str) -> dict[str, str]:
    return {name: one.url for name, one in destination_of(settings, environ).signals.items()}


def test_an_endpoint_is_that_of_the_file_or_of_a_variable_or_of_one_signal():
    assert urls(OtelSettings()) == {}
    assert urls(FILE) == {name: f"http://file:4318/v1/{name}" for name in ("traces", "metrics", "logs")}
    assert urls(FILE, OTEL_EXPORTER_OTLP_ENDPOINT="https://env")["logs"] == "https://env/v1/logs"
    own = urls(OtelSettings(), OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://t/any/path")
    assert own == {"traces": "http://t/any/path"}


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, set[str]()),
        ({"OTEL_METRICS_EXPORTER": "none"}, {"traces", "logs"}),
    ],
)
def test_signals_are_left_out(environ: dict[str, str], left: set[str]):
    assert set(urls(FILE, **environ)) == left
    assert set(urls(OtelSettings(endpoint="http://x", signals=("logs",)))) == {"logs"}


def test_headers_timeout_compression_and_resource_are_read_from_variables():
    environ = {
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x-team = agents",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=ci,service.name=other",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_METRIC_EXPORT_INTERVAL": "30000",
    }
    found = destination_of(FILE, environ)
    end = found.signals["traces"]
    assert dict(end.headers) == {"api-key": "a b", "x-team": "agents"}
    assert (end.timeout_s, end.gzip, found.interval_s) == (2.5, True, 30.0)
    assert found.resource == {"service.name": "mine", "deployment.environment": "ci"}
    assert "a b" not in repr(found)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "sw0rdfish"}, "name=value"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "milliseconds"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "http://"),
    ],
)
def test_what_cannot_be_used_is_said_without_its_value(environ: dict[str, str], said: str):
    with pytest.raises(ValueError, match=said) as caught:
        destination_of(FILE, environ)
    assert "sw0rdfish" not in str(caught.value)


class Told:
    def __init__(self, collector: Collector, **more: Any) -> None:
        self.said: list[str] = []
        end = Endpoint(url=f"{collector.url}/v1/traces?key=s3cret", headers={"api-key": "s3cret"}, timeout_s=20, **more)
        self.channel = Channel("traces", end, self.said.append)
        collector.requests["/v1/traces?key=s3cret"] = []


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(channels, "LONGEST_PAUSE_S", 0.0)  # no waits
    with collecting() as found:
        yield found


@pytest.mark.parametrize(
    ("status", "sent", "is_off"),
    [(429, Sent.LATER, False), (503, Sent.LATER, False), (401, Sent.LATER, False), (400, Sent.DONE, False), (404, Sent.DONE, True)],
)  # fmt: skip
def test_what_is_refused_is_sent_again_or_left_out(collector: Collector, status: int, sent: Sent, is_off: bool):
    told = Told(collector, gzip=False)
    collector.refuses["/v1/traces?key=s3cret"] = [status, status]
    answers = [told.channel.send(BODY), told.channel.send(BODY)]
    assert answers == [sent, sent]
    assert told.channel.is_off is is_off
    assert len(told.said) == 1
    assert str(status) in told.said[0]
    assert "s3cret" not in told.said[0]
    assert len(collector.asked) == (1 if is_off else 2)


def test_a_dead_collector_is_told_of_once_and_asked_again_after_a_pause(monkeypatch: pytest.MonkeyPatch):
    with collecting() as gone:
        pass
    told = Told(gone, gzip=True)
    assert told.channel.send(BODY) is Sent.LATER
    assert not told.channel.is_due
    assert told.channel.send(BODY) is Sent.LATER  # not asked
    assert told.said == []
    monkeypatch.setattr(channels, "LONGEST_PAUSE_S", 0.0)
    told.channel._again_at = 0.0  # pyright: ignore[reportPrivateUsage]
    assert [told.channel.send(BODY) for _ in range(3)] == [Sent.LATER] * 3
    assert len(told.said) == 1
    assert "cannot be reached" in told.said[0]
