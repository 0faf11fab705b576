"""GPUs and the queue for them as lines of text."""

from __future__ import annotations

from evalfleet.answers.gpus import Gpu, GpuHolder, GpuList, GpuTicket
from evalfleet.report import text
from evalfleet.report.terminal.lines import Column, Line, Span, Style, line, table

_HEADS = [
    Column("gpu", most=46),
    Column("model", most=28),
    Column("memory", right=True),
    Column("busy", right=True),
    Column("who"),
]
_QUEUE = [Column("place", right=True), Column("for", right=True), Column("asks for"), Column("who")]


def gpu_lines(facts: GpuList, now: float, width: int) -> list[Line]:
    """`facts` are those of `gpus_facts`."""
    shown: list[Line] = []
    for host in dict.fromkeys(gpu.host for gpu in facts.gpus):
        rows = [gpu for gpu in facts.gpus if gpu.host == host]
        shown += [line(Span(text.printable(host), Style.STRONG)), *_table(rows, now, width), []]
    if facts.waiting:
        shown += [
            line(Span("waiting", Style.STRONG)),
            *table(_QUEUE, [_waiter(one, now) for one in facts.waiting], width, 2),
        ]
    else:
        shown.append(line(Span("no task is waiting", Style.FAINT)))
    return shown


def _table(gpus: list[Gpu], now: float, width: int) -> list[Line]:
    rows: list[list[Span]] = []
    for gpu in gpus:
        busy = gpu.utilization
        who = _who(gpu, now)
        rows.append(
            [
                Span(f"{gpu.index}  {text.printable(gpu.uuid)}"),
                Span(text.printable(gpu.name or text.NONE)),
                Span(_memory(gpu)),
                Span(text.NONE if busy is None else f"{busy} %"),
                who[0],
            ]
        )
        rows += [[Span(""), Span(""), Span(""), Span(""), more] for more in who[1:]]
    return table(_HEADS, rows, width, 2)


def _memory(gpu: Gpu) -> str:
    total, used = gpu.memory_mb, gpu.used_mb
    if total is None:
        return text.NONE
    return f"{'?' if used is None else f'{used / 1024:.1f}'} / {total / 1024:.0f} GB"


def _who(gpu: Gpu, now: float) -> list[Span]:
    found: list[Span] = []
    if gpu.quarantine:
        since = text.span(now - gpu.quarantine.since_at)
        reason = text.printable(gpu.quarantine.reason)
        found.append(Span(f"in quarantine for {since}: {reason}", Style.BAD))
    found += [
        Span(f"{_name(one)}{_share(one)}, for {text.span(now - one.since_at)}", Style.NAME) for one in gpu.holders
    ]
    for one in gpu.foreign:
        memory = "" if one.memory_mb is None else f", {one.memory_mb} MB"
        found.append(
            Span(f"process {one.pid} ({text.printable(one.name or 'nameless')}{memory}), not evalfleet's", Style.WARN)
        )
    if gpu.held:
        found.append(Span(f"locked by {text.printable(gpu.held)}", Style.WARN))
    if gpu.unexplained_mb and not gpu.holders:
        found.append(Span(f"{gpu.unexplained_mb} MB in use by an unknown process", Style.WARN))
    return found or [Span("free", Style.GOOD)]


def whose(gpu: Gpu, now: float) -> str:
    """The users of a GPU, in one line."""
    return ", ".join(span.text for span in _who(gpu, now))


def _name(one: GpuHolder | GpuTicket) -> str:
    if one.run is None:
        return text.printable(one.program or "a program")
    worker = f" on {one.worker}" if isinstance(one, GpuHolder) and one.worker else ""
    return f"{text.printable(one.run_name or one.run)}: {text.printable(one.key or str(one.task))}{worker}"


def _share(one: GpuHolder) -> str:
    return f", {one.memory_mb} MB" if one.memory_mb is not None else ""


def _waiter(one: GpuTicket, now: float) -> list[Span]:
    each = f", {one.memory_mb} MB of each" if one.memory_mb else ""
    return [
        Span(str(one.position)),
        Span(text.span(now - one.since_at)),
        Span(f"{text.count(one.gpus, 'GPU')}{each}"),
        Span(_name(one), Style.NAME),
    ]
