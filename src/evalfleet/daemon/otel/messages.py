"""Spans, log records and metrics as messages of OpenTelemetry's protocol. Imports `opentelemetry-proto`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from evalfleet.core.tracing import Log, Span, Value
from evalfleet.version import version

MOST_CHARS = 4096  # of one attribute


class Point(Struct, frozen=True, kw_only=True):
    """A value of a metric at a moment."""

    name: str
    unit: str
    at: float
    value: float
    attributes: Mapping[str, str]


def trace_request(spans: Iterable[Span], resource: Mapping[str, str]) -> bytes:
    scoped = trace_pb2.ScopeSpans(scope=_scope(), spans=[_span(one) for one in spans])
    whole = trace_pb2.ResourceSpans(resource=_resource(resource), scope_spans=[scoped])
    return ExportTraceServiceRequest(resource_spans=[whole]).SerializeToString()


def log_request(logs: Iterable[Log], resource: Mapping[str, str]) -> bytes:
    scoped = ScopeLogs(scope=_scope(), log_records=[_record(one) for one in logs])
    whole = ResourceLogs(resource=_resource(resource), scope_logs=[scoped])
    return ExportLogsServiceRequest(resource_logs=[whole]).SerializeToString()


def metric_request(points: Sequence[Point], resource: Mapping[str, str]) -> bytes:
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    metrics = [
        Metric(name=name, unit=some[0].unit, gauge=Gauge(data_points=map(_point, some)))
        for name, some in by_name.items()
    ]
    scoped = ScopeMetrics(scope=_scope(), metrics=metrics)
    whole = ResourceMetrics(resource=_resource(resource), scope_metrics=[scoped])
    return ExportMetricsServiceRequest(resource_metrics=[whole]).SerializeToString()


def _span(span: Span) -> trace_pb2.Span:
    made = trace_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_id or b"",
        name=span.name,
        kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=_nano(span.begin),
        end_time_unix_nano=_nano(span.end),
        attributes=_attributes(span.attributes),
        events=[trace_pb2.Span.Event(time_unix_nano=_nano(at), name=name) for at, name in span.marks],
    )
    if span.error is not None:
        made.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        made.status.message = span.error[:MOST_CHARS]
    return made


def _record(log: Log) -> LogRecord:
    event = log.event
    found: dict[str, Value] = {
        "evalfleet.event.number": event.number,
        "evalfleet.run.id": event.run_id,
        **({"evalfleet.task.key": event.task} if event.task else {}),
        **({"evalfleet.attempt.id": event.attempt} if event.attempt else {}),
        "evalfleet.event.data": json.dumps(event.data, ensure_ascii=False),
    }
    return LogRecord(
        time_unix_nano=_nano(event.at),
        observed_time_unix_nano=_nano(event.at),
        severity_number=cast("Any", log.severity.value),  # the same numbers, in another type
        severity_text=log.severity.name,
        event_name=event.type,
        body=AnyValue(string_value=event.type),
        attributes=_attributes(found),
        trace_id=log.trace_id,
        span_id=log.span_id,
    )


def _point(point: Point) -> NumberDataPoint:
    return NumberDataPoint(
        time_unix_nano=_nano(point.at), as_double=point.value, attributes=_attributes(point.attributes)
    )


def _resource(values: Mapping[str, str]) -> Resource:
    return Resource(attributes=_attributes(values))


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name="evalfleet", version=version())


def _attributes(values: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in values.items()]


def _value(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value) if abs(value) < 1 << 63 else AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value[:MOST_CHARS].encode("utf-8", "replace").decode())


def _nano(at: float) -> int:
    return max(0, int(at * 1_000_000_000))
