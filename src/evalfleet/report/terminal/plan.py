"""Plans as text, in lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from evalfleet.answers.plans import Estimate, Plan, PlanOption
from evalfleet.report.text import clip, count, printable

_WIDTH = 80
_MACHINES = 26
_SHORT_S = 3 * 3600  # below it times are told in minutes


def plan_lines(plan: Plan) -> list[str]:
    """The front with the chosen option marked, what it is based on, and how to take it."""
    return [*_heading(plan), *_table(plan), *_notes(plan), *comparison_lines(plan), *_next(plan)]


def _heading(plan: Plan) -> list[str]:
    basis = plan.basis
    wanted = [
        *([] if plan.deadline_s is None else [f"within {_minutes(plan.deadline_s)}"]),
        *([] if plan.budget_usd is None else [f"for at most ${plan.budget_usd:.2f}"]),
    ]
    tasks = count(plan.tasks, "task")
    of = (
        "" if plan.source == tasks else f" of {printable(plan.source)}"
    )  # a plan for a number of tasks has no other source
    heading = f"plan {plan.id}: {tasks}{of}{', ' * bool(wanted)}"
    from_ = (
        f"from {count(basis.runs, 'earlier run')} with {basis.known_tasks} of {basis.tasks} tasks, and "
        f"{count(basis.machines, 'machine')}"
        if basis.runs
        else "no earlier run tells; what is assumed stands below"
    )
    return [clip(heading + " and ".join(wanted), _WIDTH), f"  {from_}"]


def _table(plan: Plan) -> list[str]:
    lines = [f"  {'':1} {'workers':>7}  {'machines':<{_MACHINES}} {'time (90 %)':>18} {'cost (90 %)':>20}"]
    for index, one in enumerate(plan.options):
        mark = "*" if index == plan.chosen else " "
        machines = clip(_machines(one), _MACHINES)
        lines.append(
            f"  {mark} {one.workers:>7}  {machines:<{_MACHINES}} {_time(one.seconds):>18} {_cost(one.usd):>20}"
        )
    return lines


def _machines(option: PlanOption) -> str:
    several = len(option.groups) > 1
    return " + ".join(
        f"{f'{group.machines} ' if several else ''}{group.size.removeprefix('Standard_')} "
        f"{group.region}{' spot' if group.spot else ''}"
        for group in option.groups
    )


def _notes(plan: Plan) -> list[str]:
    notes: list[str] = []
    if not plan.keeps:
        notes.append("nothing keeps what was asked for in 95 % of cases; * comes nearest")
    if plan.basis.assumptions:
        notes.append(f"assumed: {'; '.join(plan.basis.assumptions)}")
    if not plan.basis.quota_asked:
        notes.append("the quota was not asked for: no account is set, or it did not answer")
    if plan.reserved is not None:
        runs = plan.reserved.runs_per_month
        when = "never pay for such runs" if runs is None else f"pay from {runs:.0f} such runs a month on"
        notes.append(f"reserved machines ({plan.reserved.share:.0%} of the price, used or not) {when}")
    return [line for note in notes for line in wrap(note, _WIDTH - 2, initial_indent="  ", subsequent_indent="    ")]


def _next(plan: Plan) -> list[str]:
    if plan.actual is not None or plan.source.endswith(" tasks"):
        return []
    return [f"  `evalfleet run {printable(plan.source)} --plan {plan.id}` takes it"]


def list_lines(plans: Sequence[Plan]) -> list[str]:
    if not plans:
        return ["no plans yet; `evalfleet plan TASKS|BENCHMARK` makes one"]
    lines = [f"{'plan':<6} {'tasks':<17} {'workers':>7} {'time (90 %)':>18} {'cost (90 %)':>19} run"]
    for plan in plans:
        option, run = plan.option, "" if plan.actual is None else plan.actual.run
        of = clip(f"{plan.tasks} {printable(plan.source)}", 17)
        shown = f"{plan.id:<6} {of:<17} {option.workers:>7} {_time(option.seconds):>18} {_cost(option.usd):>19} {run}"
        lines.append(shown.rstrip())
    return lines


def comparison_lines(plan: Plan) -> list[str]:
    """Plan and truth side by side; nothing for a plan that no run follows."""
    actual = plan.actual
    if actual is None:
        return []
    so_far = "" if actual.over else " so far"
    lines = [f"  {'Plan':<12} {'planned (90 %)':>20}  {f'actual{so_far}':>14}  of plan {plan.id}"]
    for what, planned, value, shown in (
        ("  time", plan.option.seconds, actual.seconds, (_time(plan.option.seconds), _minutes(actual.seconds))),
        ("  cost", plan.option.usd, actual.usd, (_cost(plan.option.usd), f"${actual.usd:.2f}")),
    ):
        lines.append(
            f"  {what:<12} {shown[0]:>20}  {shown[1]:>14}  {_where(value, planned, over=actual.over)}".rstrip()
        )
    return lines


def _where(value: float, planned: Estimate, *, over: bool) -> str:
    if value > planned.high:
        return "above"
    if not over:
        return ""
    return "below" if value < planned.low else "inside"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} m" if seconds < _SHORT_S else f"{seconds / 3600:.1f} h"


def _time(found: Estimate) -> str:
    if found.high < _SHORT_S:
        return f"{found.mean / 60:.0f} m ({found.low / 60:.0f}–{found.high / 60:.0f})"
    return f"{found.mean / 3600:.1f} h ({found.low / 3600:.1f}–{found.high / 3600:.1f})"


def _cost(found: Estimate) -> str:
    return f"${found.mean:.2f} ({found.low:.2f}–{found.high:.2f})"
