"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP, and reads it with the protocol's own classes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS: dict[str, tuple[Any, Any]] = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
}


@dataclass
class Collector:
    url: str = ""
    refuses: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  # path -> statuses of the next answers
    asked: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    requests: dict[str, list[Any]] = field(default_factory=lambda: {path: [] for path in KINDS})

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self.asked.append(path)
        self.headers.append(headers)
        if self.refuses.get(path):
            return self.refuses[path].pop(0), b""
        assert headers["content-type"] == "application/x-protobuf"
        request, response = KINDS[path]
        data = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.requests[path].append(request.FromString(data))
        return 200, response().SerializeToString()

    def spans(self, name: str | None = None) -> list[Any]:
        found = [
            span
            for one in self.requests["/v1/traces"]
            for whole in one.resource_spans
            for scope in whole.scope_spans
            for span in scope.spans
        ]
        return [span for span in found if name is None or span.name == name]

    def logs(self) -> list[Any]:
        return [
            record
            for one in self.requests["/v1/logs"]
            for whole in one.resource_logs
            for scope in whole.scope_logs
            for record in scope.log_records
        ]

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric by its name."""
        found: dict[str, list[Any]] = {}
        for one in self.requests["/v1/metrics"]:
            for metric in one.resource_metrics[0].scope_metrics[0].metrics:
                found.setdefault(metric.name, []).extend(metric.gauge.data_points)
        return found


def attributes(message: Any) -> dict[str, Any]:
    """Of a span, log record, point or resource."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in message.attributes}


@contextmanager
def collecting() -> Generator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = collector.take(self.path, headers, self.rfile.read(int(headers["content-length"])))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
