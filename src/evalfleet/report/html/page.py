"""The HTML report: one file that needs nothing else, and lets nothing out.

Its content security policy forbids every request, and every script but its own, which is named by its hash. Text from
tasks is escaped where it is written into the page, and the script sets it as text only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from evalfleet.answers.base import Range
from evalfleet.answers.summary import Summary, TaskCounts
from evalfleet.answers.task_result import TaskResult
from evalfleet.layout import task_folder_name
from evalfleet.model import Run
from evalfleet.report import text
from evalfleet.report.failure_groups import sentence
from evalfleet.report.html import charts
from evalfleet.report.html.filmstrips import MOST_PICTURES, NONE, Filmstrips, filmstrips
from evalfleet.report.html.repeats import repeat_table
from evalfleet.report.removed import removed_words
from evalfleet.report.summary import covered, summarise
from evalfleet.report.timeline import look_of, timeline
from evalfleet.store.reader import StoreReader

_MOST_EVIDENCE = 400
_STATE_WORDS = {"infra": "held", "own": "failed", "off": "cancelled"}


def page(
    store: StoreReader, run: Run, home: Path | None = None, *, beside: Path | None = None, most: int = MOST_PICTURES
) -> str:
    """Return the whole page as text.

    Args:
        home: where the files of attempts lie, for what they did step by step; None leaves that out.
        beside: the folder that the page will lie in, for links to pictures that are not in it.
        most: characters that pictures may take together.
    """
    summary = summarise(store, run)
    with store.snapshot():
        attempts = list(store.attempts.all_rows(run.id))
        now = store.now()
    results = summary.results or []
    keys = {number: result.key for number, result in enumerate(results, 1)}
    # A task that was added between the two reads is left to the next report.
    attempts = [one for one in attempts if one["task_number"] in keys]
    lanes = timeline(attempts, now)
    strips = filmstrips(home, run.id, keys, attempts, most=most, beside=beside) if home else NONE
    sections = [
        _header(summary),
        *(_scored(summary) if run.policy.study is None else _searched(store, run)),
        _section("Workers over time", charts.lanes(lanes, keys) + charts.legend(_looks(attempts)) if lanes else ""),
        _section("Failed attempts", _failures(summary)),
        _section("Do retries flatter the score?", _retries(summary)),
        _section("Repeats", repeat_table(summary.repeats)),
        "".join(f'<p class="note">{escape(said)}</p>' for said in removed_words(summary.removed)),
        _section("Tasks" if run.policy.study is None else "Attempts of each trial", _tasks(summary, strips, most)),
        _footer(run, now),
    ]
    data = {
        "data": _data(run, results, attempts, strips),
        "films": {"films": strips.films, "pictures": strips.pictures},
    }
    return _document(summary, "".join(sections), data)


def _scored(summary: Summary) -> list[str]:
    return [_cards(summary), _section("By domain", _domains(summary))]


def _searched(store: StoreReader, run: Run) -> list[str]:
    """Of a study, where a run has its scores."""
    from evalfleet.report.html import study  # the whole of `tune` with it, which plain runs need not load
    from evalfleet.report.studies.study import study_facts

    facts = study_facts(store, run)
    return [
        study.cards(facts),
        _section("History", study.history(facts)),
        _section("Parameters", study.parameters(facts)),
        _section("Trials", study.trials(facts)),
    ]


def _document(summary: Summary, body: str, data: dict[str, Any]) -> str:
    css, script = _part("page.css") + _part("film.css"), _part("film.js") + _part("page.js")
    held = "".join(
        f'<script type="application/json" id="{name}">{_inert(value)}</script>\n' for name, value in data.items()
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    title = escape(text.printable(summary.name or summary.run))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{title}: evalfleet report</title><style>{css}</style></head>\n<body><main>{body}</main>\n"
        f"{held}<script>{script}</script></body></html>\n"
    )


def _part(name: str) -> str:
    return files("evalfleet.report").joinpath("page", name).read_text("utf-8")


def _inert(value: Any) -> str:
    """JSON for a script element; only these characters could end it or start another."""
    dumped = json.dumps(value, separators=(",", ":"))
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _moment(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at)) if at is not None else ""


def _header(summary: Summary) -> str:
    name = text.printable(summary.name or summary.run)
    facts = [f"run {summary.run}"]
    if summary.started_at is not None:
        facts += [_moment(summary.started_at), text.span(summary.duration_s)]
    why = ""
    if summary.reason is not None:
        why = f'<p class="why">{escape(text.printable(summary.reason.message))}</p>'
    return (
        f'<header><h1>{escape(name)}</h1><span class="state {summary.state}">{summary.state}</span>'
        f'<p class="faint">{escape(" · ".join(facts))}</p>{why}</header>'
    )


def _cards(summary: Summary) -> str:
    scores, tasks, cost = summary.scores, summary.tasks, summary.cost
    counted = scores.verdicts + tasks.failed
    big = _score_card(
        "Valid score", scores.valid, scores.ci95.valid, f"Mean over the {counted:,} tasks that count."
    ) + _score_card(
        "Strict score",
        scores.strict,
        scores.ci95.strict,
        f"Mean over all {tasks.total:,} tasks; one without a verdict counts as 0.",
    )
    accept = f"wanted {summary.accept * 100:g}%: {'reached' if summary.accepted else 'not reached'}"
    small = [
        ("Coverage", text.percent(scores.coverage), f"{counted:,} of {tasks.total:,} tasks; {accept}"),
        ("Passed", f"{scores.passed:,}", _rest(tasks, scores.passed)),
        (
            "Attempts",
            f"{summary.attempts.total:,}",
            f"{text.percent(summary.retry_rate)} of the tasks retried",
        ),
        ("Cost", text.money(cost.total_usd), _cost_note(summary)),
        ("Waste", text.money(cost.waste_usd), _waste_note(summary)),
        ("Mean task", text.span(summary.avg_task_duration_s), "of the attempt that decided it"),
    ]
    cards = "".join(
        f'<div class="card"><h3>{name}</h3><b>{escape(value)}</b><p>{escape(note)}</p></div>'
        for name, value, note in small
    )
    covers = covered(summary)
    part = "" if covers is None else f'<p class="why">The scores cover {escape(covers)}.</p>'
    return f'<section class="cards"><div class="scores">{big}</div>{part}<div class="facts">{cards}</div></section>'


def _score_card(name: str, score: float | None, bounds: Range | None, meaning: str) -> str:
    sure = f"95% CI {text.interval(bounds)}." if bounds else "Nothing counts yet."
    return (
        f'<div class="card score"><h3>{name}</h3><b>{text.percent(score)}</b>'
        f"{charts.interval_bar(score, bounds)}<p>{sure} {meaning}</p></div>"
    )


def _rest(tasks: TaskCounts, passed: int) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in _results(tasks, passed).items() if word != "passed") or (
        "every task"
    )


def _results(tasks: TaskCounts, passed: int) -> dict[str, int]:
    """How many tasks there are of each result: the verdict, or the state of those without one."""
    counts = {"passed": passed, "not passed": tasks.done - passed, **dict(text.rest_of(tasks))}
    return {word: count for word, count in counts.items() if count}


def _cost_note(summary: Summary) -> str:
    cost = summary.cost
    notes = [f"of {text.money(cost.budget_usd)}"] if cost.budget_usd is not None else []
    if cost.cost_per_task_usd is not None:
        notes.append(f"{text.money(cost.cost_per_task_usd)} per task")
    if cost.hourly_rate_usd:
        notes.append(f"{text.money(cost.hourly_rate_usd)} per hour")
    return ", ".join(notes)


def _waste_note(summary: Summary) -> str:
    cost = summary.cost
    notes = [f"{what} {text.money(usd)}" for what, usd in cost.waste.items()]
    if cost.idle_usd:
        notes.append(f"{text.money(cost.idle_usd)} for idle workers besides")
    return ", ".join(notes) or "on attempts that gave no verdict"


def _domains(summary: Summary) -> str:
    successes: dict[str, int] = {}
    for result in summary.results or ():
        successes[result.domain] = successes.get(result.domain, 0) + bool(result.success)
    tasks = summary.tasks
    present = {"own": tasks.failed, "infra": tasks.held, "off": tasks.cancelled}
    looks = ("pass", "wrong", *(look for look, count in present.items() if count))
    return charts.domains(summary.by_domain, successes) + charts.legend(looks, _STATE_WORDS)


def _looks(attempts: list[dict[str, Any]]) -> tuple[str, ...]:
    present = {look_of(one) for one in attempts}
    return tuple(look for look in charts.LOOKS if look in present)


def _failures(summary: Summary) -> str:
    kinds = summary.failure_kinds
    if not kinds:
        return ""
    rows = "".join(
        f'<tr><td class="tag"><i class="{"own" if kind.blame == "task" else "infra"}"></i>{escape(kind.kind)}</td>'
        f'<td>{escape(kind.blame)}</td><td class="num">{kind.attempts:,}</td><td class="num">{kind.tasks:,}</td>'
        f'<td class="evidence"><b>{escape(text.printable(kind.key))}</b> '
        f"{escape(text.printable(kind.evidence[:_MOST_EVIDENCE]))}</td></tr>"
        for kind in kinds
    )
    blames = ", ".join(f"{count:,} on the {escape(blame)}" for blame, count in summary.failures_by_blame.items())
    return (
        f"<p>Blamed: {blames}.</p>"
        '<div class="wide"><table class="fails"><thead><tr><th>Kind</th><th>Blamed on</th><th class="num">Attempts</th>'
        f'<th class="num">Tasks</th><th>Latest example</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f"{_shared(summary)}"
    )


def _shared(summary: Summary) -> str:
    """Failures of several tasks with one message."""
    common = summary.common_failure
    said = ""
    if common is not None:
        said = f'<p class="why">{escape(text.printable(sentence(common)))}. {escape(common.advice)}</p>'
    rows = "".join(
        f'<tr><td class="num">{group.attempts:,}</td><td class="num">{group.tasks:,}</td><td>{escape(group.kind)}</td>'
        f'<td class="evidence">{escape(text.printable(group.message[:_MOST_EVIDENCE]))}</td></tr>'
        for group in summary.failure_groups
        if group.tasks > 1
    )
    if not rows:
        return said
    return (
        f'{said}<h3>Same message</h3><div class="wide"><table class="fails"><thead><tr><th class="num">Attempts</th>'
        f'<th class="num">Tasks</th><th>Kind</th><th>Message</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _retries(summary: Summary) -> str:
    first, retried = summary.retry_bias.first_attempt, summary.retry_bias.retried
    if not retried.n or summary.study is not None:
        return ""
    rows = "".join(
        f'<div class="name">{name}</div><div>{charts.stacked([("pass", part.score or 0.0)], 1.0, name)}</div>'
        f'<div class="num">{text.percent(part.score)}</div><div class="num faint">{part.n:,}</div>'
        for name, part in (("First attempt", first), ("Retried", retried))
    )
    return (
        "<p>Mean score of tasks whose first attempt gave the verdict, and of those that needed more. A large difference "
        f'means that who is retried matters for the score.</p><div class="domains">{rows}</div>'
    )


def _tasks(summary: Summary, strips: Filmstrips, most: int) -> str:
    options = "".join(
        f'<option value="{word}">{word} ({count:,})</option>'
        for word, count in _results(summary.tasks, summary.scores.passed).items()
    )
    heads = (
        ("key", "Task", ""), ("domain", "Domain", "wideonly"), ("result", "Result", ""), ("score", "Score", "num"),
        ("steps", "Steps", "num wideonly"), ("duration", "Time", "num"), ("attempts", "Attempts", "num wideonly"),
        ("worker", "Worker", "wideonly"), ("failure", "Failure", "wideonly"),
    )  # fmt: skip
    columns = "".join(
        f'<th class="{look}" data-sort="{name}"><button type="button">{title}</button></th>'
        for name, title, look in heads
    )
    told = "<p>Open a task to see what its attempts did, step by step.</p>" if strips.films else ""
    note = f'<p class="faint">{escape(strips.note(most))}</p>' if strips.note(most) else ""
    return (
        f"{told}{note}"
        '<div class="tools"><input id="search" type="search" placeholder="Search tasks, workers, failures" '
        'aria-label="Search"><select id="result" aria-label="Result"><option value="">all results</option>'
        f'{options}</select><span id="found" class="faint" aria-live="polite"></span></div>'
        f'<div class="wide"><table id="tasks"><thead><tr>{columns}</tr></thead><tbody></tbody></table></div>'
        '<button id="more" type="button" hidden>Show more</button>'
        "<noscript><p>The list of tasks needs JavaScript; `evalfleet report --json` has the same.</p></noscript>"
    )


def _footer(run: Run, now: float) -> str:
    return (
        f'<footer class="faint">Made {_moment(now)} by <code>evalfleet report {run.id} --html</code>. Files of an attempt '
        "lie in the home folder, under the path shown with it.</footer>"
    )


def _data(
    run: Run, results: Iterable[TaskResult], attempts: Iterable[dict[str, Any]], strips: Filmstrips
) -> dict[str, Any]:
    """The tasks and their attempts for the script, in short rows."""
    by_task: dict[int, list[list[Any]]] = {}
    for one in attempts:
        film = strips.places.get((one["task_number"], one["number"]))
        by_task.setdefault(one["task_number"], []).append([*_attempt(one), film])
    tasks = [
        [
            text.printable(result.key),
            text.printable(result.domain),
            result.state,
            result.score,
            result.success,
            result.steps,
            result.duration_s,
            result.worker and text.printable(result.worker),
            result.failure and result.failure.kind,
            task_folder_name(result.key),
            result.reason and text.printable(result.reason[:_MOST_EVIDENCE]),
            by_task.get(number, []),
        ]
        for number, result in enumerate(results, 1)
    ]
    return {"run": run.id, "tasks": tasks}


def _attempt(one: dict[str, Any]) -> list[Any]:
    duration = one["duration_s"]
    return [
        one["number"],
        text.printable(one["worker"]),
        look_of(one),
        one["outcome"] or one["state"],
        None if duration is None else round(duration, 3),
        round(one["cost_usd"], 6),
        one["kind"],
        one["blame"],
        one["evidence"] and text.printable(one["evidence"][:_MOST_EVIDENCE]),
    ]
