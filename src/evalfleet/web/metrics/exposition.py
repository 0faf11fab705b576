"""Prometheus' text format, and every metric that we tell with what it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Sample(Struct, frozen=True, kw_only=True):
    name: str  # of its metric
    value: float
    labels: Mapping[str, str]
    suffix: str = ""  # _sum, _count, _bucket


METRICS: dict[str, tuple[str, str]] = {
    "evalfleet_runs": ("gauge", "Runs by state."),
    "evalfleet_events_total": ("counter", "Number of the newest event."),
    "evalfleet_feed_readers": ("gauge", "Readers of the live feed."),
    "evalfleet_alerts_firing": ("gauge", "Alerts that are firing, by rule and severity."),
    "evalfleet_alerts_fired_total": ("counter", "Alerts that fired, by rule."),
    "evalfleet_alerts_undelivered": ("gauge", "Messages that a channel has not taken yet."),
    "evalfleet_http_request_duration_seconds": ("histogram", "How long answers of this server took, by address."),
    # Of a run that is not over, or just ended
    "evalfleet_run_info": ("gauge", "One for each run, with its name, state and pool."),
    "evalfleet_run_driven": ("gauge", "1: a controller drives it."),
    "evalfleet_run_tasks": ("gauge", "Tasks of a run by state."),
    "evalfleet_run_attempts": ("gauge", "Attempts of a run by outcome; live ones are `live`."),
    "evalfleet_run_failures": ("gauge", "Failed attempts of a run by kind and blame."),
    "evalfleet_run_workers": ("gauge", "Workers that a run may use, that are busy, quarantined; hosts that are lost."),
    "evalfleet_run_cost_usd": ("gauge", "What a run has cost."),
    "evalfleet_run_waste_usd": ("gauge", "What it spent on attempts without a verdict."),
    "evalfleet_run_estimated_total_usd": ("gauge", "What it will have cost."),
    "evalfleet_run_hourly_rate_usd": ("gauge", "What it costs an hour now."),
    "evalfleet_run_cost_per_task_usd": ("gauge", "What a decided task cost."),
    "evalfleet_run_budget_usd": ("gauge", "What it may cost."),
    "evalfleet_run_retry_ratio": ("gauge", "Share of tried tasks that needed more than one attempt."),
    "evalfleet_run_coverage_ratio": ("gauge", "Share of tasks that count in the valid score."),
    "evalfleet_run_score_ratio": ("gauge", "Strict and valid score."),
    "evalfleet_run_breaker_open": ("gauge", "1: the breaker is open."),
    "evalfleet_run_lease_age_seconds": ("gauge", "Age of the oldest lease of a live attempt."),
    "evalfleet_run_lease_left_seconds": ("gauge", "Until the first lease of a live attempt expires; below 0: it has."),
    "evalfleet_run_start_seconds": (
        "summary",
        "From the process of an attempt to its readiness: its container or app.",
    ),
    "evalfleet_run_dispatch_seconds": ("summary", "From the claim of a task to the process of its attempt."),
    "evalfleet_run_queue_wait_seconds": ("summary", "From the start of the run to the first claim of a task."),
    "evalfleet_run_attempt_seconds": ("summary", "How long attempts took that have ended."),
    "evalfleet_run_waiting_seconds": ("gauge", "How long the oldest task that may start waits."),
    # Of pools and hosts
    "evalfleet_pool_hosts": ("gauge", "Machines of a pool by state."),
    "evalfleet_pool_paused": ("gauge", "1: the pool makes no more machines."),
    "evalfleet_pool_cost_usd": ("gauge", "What the machines of a pool have cost."),
    "evalfleet_pool_hourly_rate_usd": ("gauge", "What they cost an hour now."),
    "evalfleet_host_attempts": ("gauge", "Live attempts by host."),
    "evalfleet_host_cpu_ratio": ("gauge", "How busy the processors of a host are."),
    "evalfleet_host_memory_ratio": ("gauge", "Share of its memory that is used."),
    "evalfleet_host_disk_ratio": ("gauge", "Share of the disk of its spool that is used."),
    "evalfleet_host_gpu_ratio": ("gauge", "How busy its GPUs are, in the mean."),
    "evalfleet_gpus": ("gauge", "GPUs of a host: free, leased, or set apart in quarantine."),
    "evalfleet_gpu_waiting": ("gauge", "Tasks and programs that wait for GPUs."),
    "evalfleet_gpu_utilization_ratio": ("gauge", "How busy a GPU is."),
    "evalfleet_gpu_memory_used_bytes": ("gauge", "Memory of a GPU that is used."),
    "evalfleet_gpu_memory_bytes": ("gauge", "Memory of a GPU."),
    "evalfleet_host_receive_bytes_per_second": ("gauge", "What it gets over the network."),
    "evalfleet_host_transmit_bytes_per_second": ("gauge", "What it sends over the network."),
}


def sample(name: str, value: float | None, /, suffix: str = "", **labels: str) -> Iterator[Sample]:
    """One, or none where the value is not known."""
    if value is not None:
        yield Sample(name=f"evalfleet_{name}", value=float(value), labels=labels, suffix=suffix)


def summary(name: str, count: float, total: float | None, /, **labels: str) -> Iterator[Sample]:
    yield from sample(name, total or 0.0, "_sum", **labels)
    yield from sample(name, count, "_count", **labels)


def exposition(found: Iterable[Sample]) -> str:
    """All samples of a metric together, after what it means."""
    by_name: dict[str, list[Sample]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    lines: list[str] = []
    for name, group in by_name.items():
        kind, text = METRICS[name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for one in group:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in one.labels.items())
            where = f"{name}{one.suffix}{{{labels}}}" if labels else f"{name}{one.suffix}"
            lines.append(f"{where} {one.value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
