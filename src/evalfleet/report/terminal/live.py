"""The live view as lines that fit a terminal: pure, so that every size can be tested without one."""

from __future__ import annotations

from evalfleet.model import RunState, TaskState, WorkerState
from evalfleet.report import text
from evalfleet.report.live import FailureLine, LiveState, WorkerLine, waiting
from evalfleet.report.terminal.lines import STATE_STYLES, Line, Span, Style, cells, fit, line, wrap

_LEAST_CELL = 25
_FULL_CELL = 60  # from here on a cell has room for everything
_MOST_CELL = 100
_GAP = 2
_MOST_FAILURES = 6

_STATES = (
    (TaskState.FAILED, Style.BAD),
    (TaskState.HELD, Style.WARN),
    (TaskState.CANCELLED, Style.WARN),
    (TaskState.RUNNING, Style.NAME),
    (TaskState.QUEUED, Style.FAINT),
)


def screen(
    live: LiveState, width: int, height: int, *, drift_s: float = 0.0, notice: str = "", hint: str = ""
) -> list[Line]:
    """Return at most `height` lines of at most `width` cells.

    Args:
        drift_s: time since `live` was read, so that clocks go on between two reads.
        notice: something that the person must know now, such as that the run is stopping.
        hint: what they can do.
    """
    head = [
        title(live, width, drift_s),
        _bar(live, width, drift_s),
        _counts(live),
        *_scores(live),
        *notices(live, notice, width),
    ]
    foot = [[], line(Span(hint, Style.FAINT))] if hint else []
    room = height - len(head) - len(foot)
    wanted = min(len(live.failures), _MOST_FAILURES)
    # Workers give way to a few failures; what then does not fit is shown more closely. What they leave is for failures.
    reserved = min(wanted, 3) + 2 if wanted and room >= 10 else 0
    workers = _workers(live.workers, width, room - reserved - 1, drift_s)
    if workers:
        workers = [[], *workers]
    failures = min(wanted, room - len(workers) - 2)
    shown = failure_lines(live.failures[:failures], live, width) if failures > 0 else []
    return [fit(one, width) for one in [*head, *workers, *shown, *foot]][:height]


def title(live: LiveState, width: int, drift_s: float) -> Line:
    """Which run, its state and its age; how many workers are busy."""
    run = live.run
    left = line(
        Span(text.clip(text.printable(run.name or run.id), max(8, width // 2 - 14)), Style.STRONG),
        *([Span(f"  {run.id}", Style.FAINT)] if run.name else []),
        "  ",
        Span(str(run.state), STATE_STYLES[run.state]),
    )
    if live.elapsed_s is not None:
        left.append(Span(f"  {text.span(live.elapsed_s + (drift_s if run.state is RunState.RUNNING else 0.0))}"))
    busy = sum(1 for one in live.workers if one.state is WorkerState.BUSY)
    right = line(Span(f"{busy}/{run.policy.workers} workers busy", Style.FAINT))
    return _between(left, right, width)


def _between(left: Line, right: Line, width: int) -> Line:
    gap = width - cells(left) - cells(right)
    return [*left, Span(" " * gap), *right] if gap >= 2 else left


def _bar(live: LiveState, width: int, drift_s: float) -> Line:
    share = live.settled / live.total if live.total else 0.0
    after = f"  {live.settled:,}/{live.total:,}  {int(share * 100)}%"
    if live.eta is not None and live.settled < live.total:
        low, high = max(0.0, live.eta.low - drift_s), max(0.0, live.eta.high - drift_s)
        after += f"  {remaining(low, high)} left"
    room = max(10, width - text.width(after))
    bar: Line = []
    left = room
    for word, count, style in _groups(live)[:-1]:
        if count and live.total:
            # Rounded up, so that a single failure among thousands is seen.
            size = min(left, max(1, round(room * count / live.total)))
            bar.append(Span(("╍" if word == TaskState.RUNNING else "━") * size, style))
            left -= size
    return [*bar, Span("─" * left, Style.FAINT), Span(after)]


def remaining(low_s: float, high_s: float) -> str:
    """A range of time in one unit: "6–8 min"; one number where both ends say the same."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if high_s >= 1.5 * size or unit == "s":
            low, high = low_s / size, max(high_s / size, 1.0)
            digits = 1 if unit == "h" and high < 10 else 0
            shown = [f"{value:.{digits}f}" for value in (low, high)]
            return f"{shown[1]} {unit}" if shown[0] == shown[1] else f"{shown[0]}{text.DASH}{shown[1]} {unit}"
    raise AssertionError


def _groups(live: LiveState) -> list[tuple[str, int, Style]]:
    """All tasks: those with a verdict by what it says, the others by their state."""
    verdicts = [
        ("passed", live.passed, Style.GOOD),
        ("not passed", live.counts[TaskState.DONE] - live.passed, Style.PLAIN),
    ]
    return verdicts + [(str(state), live.counts[state], style) for state, style in _STATES]


def _counts(live: LiveState) -> Line:
    parts: Line = []
    for word, count, style in _groups(live):
        if count or word == "passed":
            parts += [Span("  " if parts else ""), Span(f"{count:,} {word}", style)]
    if live.retried:
        parts.append(Span(f"  {live.retried:,} retried", Style.FAINT))
    return parts


def _scores(live: LiveState) -> list[Line]:
    scores = live.scores
    interval = scores.ci95_valid
    sure = f" ({text.interval((interval.low, interval.high))})" if interval else ""
    lines = [
        line(
            Span("valid ", Style.FAINT),
            Span(text.percent(scores.valid), Style.STRONG),
            f"{sure}  ",
            Span("strict ", Style.FAINT),
            Span(text.percent(scores.strict), Style.STRONG),
            Span("  coverage ", Style.FAINT),
            f"{text.percent(scores.coverage)}",
        )
    ]
    budget = live.run.policy.budget_usd
    if live.cost_usd or budget is not None:
        of = f" of {text.money(budget)}" if budget is not None else ""
        near = budget is not None and live.cost_usd > 0.9 * budget
        cost = line(
            Span("cost ", Style.FAINT), Span(text.money(live.cost_usd) + of, Style.WARN if near else Style.STRONG)
        )
        if live.waste_usd:
            cost.append(Span(f"  waste {text.money(live.waste_usd)}", Style.FAINT))
        lines.append(cost)
    return lines


def notices(live: LiveState, notice: str, width: int) -> list[Line]:
    """What needs a person's attention now."""
    said: list[str] = []
    if live.run.reason is not None:
        said.append(f"paused: {live.run.reason.get('message', '')}")
    elif live.breaker is not None:
        said.append(f"breaker open: {live.breaker}")
    elif live.waits is not None:
        said.append(waiting(live.waits))
    elif _starts_slowly(live):
        said.append("starting slowly: a few attempts first, the other workers follow at the first verdict")
    if notice:
        said.append(notice)
    return [part for one in said for part in wrap(line(Span(text.printable(one), Style.WARN)), width)]


def _starts_slowly(live: LiveState) -> bool:
    busy = sum(1 for one in live.workers if one.state is WorkerState.BUSY)
    waits = busy < len(live.workers) and live.counts[TaskState.QUEUED] > 0
    return waits and busy > 0 and live.counts[TaskState.DONE] == 0 and live.run.policy.breaker


def _workers(workers: tuple[WorkerLine, ...], width: int, room: int, drift_s: float) -> list[Line]:
    """One line per worker; several columns where they are too many; the longest-running ones where even that is not enough."""
    if room <= 0 or not workers:
        return []
    if len(workers) <= room:
        names = max(text.width(text.printable(one.name)) for one in workers)
        return [_worker(one, min(width, _MOST_CELL), min(names, 20), drift_s) for one in workers]
    columns = max(1, min(-(-len(workers) // room), width // _LEAST_CELL))
    more: list[Line] = []
    if len(workers) > columns * room:
        busy = sorted((one for one in workers if one.elapsed_s is not None), key=lambda one: -(one.elapsed_s or 0.0))
        kept = busy[: columns * (room - 1)]
        more = [
            line(
                Span(f"and {len(workers) - len(kept)} more workers, {len(busy) - len(kept)} of them busy", Style.FAINT)
            )
        ]
        workers = tuple(kept)
    cell = (width - _GAP * (columns - 1)) // columns
    rows = -(-len(workers) // columns)
    names = min(max(text.width(text.printable(one.name)) for one in workers), 20)
    drawn = [_worker(one, cell, names, drift_s) if cell >= _FULL_CELL else _cell(one, cell, drift_s) for one in workers]
    # Down the columns, as a list of names is read.
    return [_row(drawn[row::rows], cell) for row in range(rows)] + more


def worker_lines(workers: tuple[WorkerLine, ...], width: int, most: int = 20) -> list[Line]:
    """The workers for a page that is printed once."""
    return _workers(workers, width, most, 0.0)


def _row(row: list[Line], cell: int) -> Line:
    joined: Line = []
    for one in row:
        joined += [*one, Span(" " * (cell - cells(one) + _GAP))]
    return joined[:-1]


_READY = Span("○ ", Style.FAINT)


def _worker(one: WorkerLine, width: int, names: int, drift_s: float) -> Line:
    name = Span(text.pad(text.clip(text.printable(one.name), names), names), Style.FAINT)
    if one.key is None or one.elapsed_s is None:
        if one.standing is not None:
            return [_READY, name, Span(f"  {one.standing}", Style.WARN)]
        return [_READY, name, Span("  ready", Style.FAINT)]
    facts = [str(one.standing)] if one.standing is not None else []
    facts += [f"attempt {one.attempt}"] if one.attempt and one.attempt > 1 else []
    facts += ["starting"] if one.starting else [f"step {one.step}"] if one.step is not None else []
    after = f"{'  '.join(facts):>19}  {text.span(one.elapsed_s + drift_s):>7}"
    room = max(8, width - names - 4 - len(after) - 2)
    key = text.pad(text.clip_middle(text.printable(one.key), room), room)
    return line(_mark(one), name, "  ", key, Span(f"  {after}", Style.FAINT))


def _mark(one: WorkerLine) -> Span:
    return Span("◌ " if one.starting else "● ", Style.NAME)


def _cell(one: WorkerLine, width: int, drift_s: float) -> Line:
    if one.key is None or one.elapsed_s is None:
        style = Style.FAINT if one.standing is None else Style.WARN
        name = text.printable(one.name or "ready")
        return [_READY, Span(text.pad(text.clip(name, width - 2), width - 2), style)]
    elapsed = text.span(one.elapsed_s + drift_s).split()[0]
    room = width - 3 - len(elapsed)
    key = text.pad(text.clip_middle(text.printable(one.key), room), room)
    return line(_mark(one), key, " ", Span(elapsed, Style.FAINT))


def failure_lines(failures: tuple[FailureLine, ...], live: LiveState, width: int) -> list[Line]:
    """The latest failed attempts."""
    total = text.count(live.failed_attempts, "failed attempt")
    lines: list[Line] = [[], line(Span(f"Last of {total}" if len(failures) > 1 else total, Style.FAINT))]
    keys = min(max(text.width(text.printable(one.key)) for one in failures), max(12, width // 4))
    kinds = max(len(f"{one.kind} · {one.blame}") for one in failures)
    for one in failures:
        lines.append(
            line(
                Span(text.pad(text.clip_middle(text.printable(one.key), keys), keys)),
                "  ",
                Span(f"{f'{one.kind} · {one.blame}':<{kinds}}", Style.BAD if one.blame == "task" else Style.WARN),
                Span(f"  {text.printable(one.evidence)}", Style.FAINT),
            )
        )
    return lines
