"""GPUs: what each is, which attempt has it, and what waits for one."""

from __future__ import annotations

from evalfleet.answers.base import Answer


class GpuQuarantine(Answer, frozen=True, kw_only=True):
    reason: str
    since_at: float


class GpuProcess(Answer, frozen=True, kw_only=True):
    """A process on a GPU that no lease explains."""

    pid: int
    memory_mb: int | None
    name: str | None


class GpuHolder(Answer, frozen=True, kw_only=True):
    run: str | None
    run_name: str | None
    task: int | None
    key: str | None
    attempt: str | None
    worker: str | None
    since_at: float
    memory_mb: int | None
    program: str | None


class Gpu(Answer, frozen=True, kw_only=True):
    host: str
    index: int
    uuid: str
    name: str | None
    memory_mb: int | None
    used_mb: int | None
    utilization: float | None
    seen_at: float | None
    quarantine: GpuQuarantine | None
    foreign: list[GpuProcess]
    unexplained_mb: int | None
    held: str | None  # which program outside of this home has it, in words
    holders: list[GpuHolder]


class GpuTicket(Answer, frozen=True, kw_only=True):
    """A place in the queue."""

    ticket: int
    since_at: float
    run: str | None
    run_name: str | None
    task: int | None
    key: str | None
    gpus: int
    memory_mb: int | None
    program: str | None
    position: int


class GpuList(Answer, frozen=True, kw_only=True):
    gpus: list[Gpu]
    waiting: list[GpuTicket]


class UnquarantinedGpu(Answer, frozen=True, kw_only=True):
    host: str
    uuid: str
