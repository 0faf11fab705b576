"""Traces, metrics and logs of runs, sent to an OpenTelemetry collector beside the controller."""
