"""What one front end can do, the others can: the commands, the routes and the Python interface against one table.

Every command, every route and every public name of Python stands in the table once or more. A row that lacks one of the
three says why.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

import evalfleet
from evalfleet.api.submit import submit_benchmark
from evalfleet.benchmarks.base import BenchmarkOptions
from evalfleet.cli import main as entry
from evalfleet.cli.pools.group import COMMANDS as POOL_COMMANDS
from evalfleet.cli.runs.shared.source import OPTIONS
from evalfleet.cli.studies.group import COMMANDS as STUDY_COMMANDS
from evalfleet.web.handlers.run_changes import NewRun
from evalfleet.web.routes import routes


class No(NamedTuple):
    """Why a front end lacks an operation."""

    reason: str


_HERE = No("is about this machine, which a script or a browser is not asked about")
_SHELL = No("is a terminal's: it holds a connection open")
_DRAWN = No("is drawn by the page from what `report`, `tasks` and `events` tell")
_CLOUD = No("asks the cloud, not the home; a person looks before ordering machines")

# Operation: command, routes, Python.
TABLE: dict[str, tuple[str | No, str | No, str | No]] = {
    "submit a run": ("run", "POST /runs", "submit submit_benchmark Task Part"),
    "list runs": ("status", "GET /runs", "list_runs"),
    "see one run": ("status watch", "GET /runs/RUN", "open_run RunHandle.progress RunHandle.state"),
    "wait for a run": ("resume watch", "POST /runs/RUN/resume", "RunHandle.wait"),
    "report": ("report", "GET /runs/RUN GET /runs/RUN/failures", "RunHandle.summary RunHandle.html"),
    "list tasks": (
        "tasks",
        "GET /runs/RUN/tasks GET /runs/RUN/tasks/N",
        "RunHandle.tasks RunHandle.results TaskResult",
    ),
    "read logs": ("logs", "GET /runs/RUN/tasks/N/attempts/N GET /runs/RUN/tasks/N/attempts/N/logs/N", "RunHandle.log"),
    "read artifacts": (
        "artifacts",
        "GET /runs/RUN/tasks/N/attempts/N/files/N",
        "RunHandle.artifacts RunHandle.artifact",
    ),
    "read events": ("events", "GET /runs/RUN/events GET /events", "RunHandle.events"),
    "compare runs": ("compare", "GET /compare", "RunHandle.compare"),
    "export a run": ("export", No("a browser downloads single files"), "RunHandle.export"),
    "import results": (
        "import",
        No("the results are a folder, often of gigabytes, beside the person"),
        "import_results",
    ),
    "judge again": ("judge", No("patterns are in the configuration of the person who judges"), "RunHandle.judge"),
    "pause": ("pause study/pause", "POST /runs/RUN/pause", "RunHandle.pause"),
    "resume": ("resume study/resume", "POST /runs/RUN/resume", "RunHandle.wait"),
    "cancel": ("cancel", "POST /runs/RUN/cancel", "RunHandle.cancel"),
    "retry": ("retry", "POST /runs/RUN/retry", "RunHandle.retry"),
    "hold": ("hold", "POST /runs/RUN/hold", "RunHandle.hold"),
    "release": ("release", "POST /runs/RUN/release", "RunHandle.release"),
    "amend": ("amend", "POST /runs/RUN/amend POST /studies/RUN/parallel", "RunHandle.amend"),
    "quarantine": ("quarantine", "POST /runs/RUN/quarantine", "RunHandle.quarantine"),
    "unquarantine": ("unquarantine", "POST /runs/RUN/unquarantine", "RunHandle.unquarantine"),
    "submit a study": ("tune", "POST /studies", "submit_study"),
    "list studies": ("study study/list", "GET /studies", "list_studies"),
    "see a study": ("study/show", "GET /studies/RUN", "open_study StudyHandle.facts"),
    "take the best": ("study/best", "GET /studies/RUN", "StudyHandle.best"),
    "list trials": ("study/export", "GET /studies/RUN", "StudyHandle.trials"),
    "add trials": ("study/add-trials", "POST /studies/RUN/add-trials", "StudyHandle.add_trials"),
    "retry failed trials": ("study/retry-failed", "POST /studies/RUN/retry-failed", "StudyHandle.retry_failed"),
    "create a pool": ("pool pool/create", "POST /pools GET /backends", "create_pool"),
    "list pools": ("pool/list", "GET /pools", "list_pools"),
    "see a pool": ("pool/status", "GET /pools/POOL", "open_pool PoolHandle.status PoolHandle.probe"),
    "scale a pool": ("pool/scale", "POST /pools/POOL/scale", "PoolHandle.scale"),
    "start a pool": ("pool/start pool/settle", "POST /pools/POOL/start", "PoolHandle.start PoolHandle.wait"),
    "stop a pool": ("pool/stop", "POST /pools/POOL/stop", "PoolHandle.stop"),
    "delete a pool": ("pool/delete", "POST /pools/POOL/delete", "PoolHandle.delete"),
    "look at a machine's screen": (
        "pool/vnc pool/screenshot",
        "GET /pools/POOL/hosts/HOST/vnc GET /pools/POOL/hosts/HOST/screenshot",
        No("a script has the artifacts"),
    ),
    "look at an attempt's screen": (
        No("`pool vnc` and `artifacts` show it"),
        "GET /runs/RUN/tasks/N/attempts/N/vnc GET /runs/RUN/tasks/N/attempts/N/screenshot",
        No("a script has the artifacts"),
    ),
    "read a machine's logs": (
        "pool/logs",
        "GET /pools/POOL/hosts/HOST/logs GET /pools/POOL/hosts/HOST/logs/N",
        "PoolHandle.logs PoolHandle.log",
    ),
    "be on a machine": ("pool/ssh pool/exec pool/tunnel", No("the page gives no shell"), _SHELL),
    "make machines ready": (
        "prepare pool/prepare pool/bake pool/images waa",
        No("takes minutes and is watched step by step"),
        No("takes minutes and is watched step by step"),
    ),
    "see GPUs": ("gpus", "GET /gpus", "GpuPool"),
    "let a GPU be leased again": ("gpus", "POST /gpus/unquarantine", No("a person looks at the machine first")),
    "see controllers": ("controllers", "GET /controllers", "list_controllers"),
    "drive queued runs": ("controller", No("a server drives runs itself"), "RunHandle.wait"),
    "see shares and quotas": ("share", "GET /shares", "list_shares"),
    "set a share or quota": ("share", "POST /shares/set", "set_share"),
    "remove a share or quota": ("share", "POST /shares/remove", "remove_share"),
    "see alerts": ("alerts", "GET /alerts POST /alerts/test", No("alerts are sent to programs by webhook")),
    "see benchmarks": ("benchmarks agents", "GET /benchmarks", No("`submit_benchmark` names those that it knows")),
    "keep a run": ("pin unpin", "POST /runs/RUN/pin POST /runs/RUN/unpin", "RunHandle.pin RunHandle.unpin"),
    "back up a home": ("backup", No("a backup lies beside the person who keeps it"), "backup"),
    "restore a home": ("restore", No("a server serves a home that is there already"), "restore"),
    "make room": ("prune", "POST /prune", "prune"),
    "serve the page": ("serve", "GET /me", No("a server is a process of its own")),
    "say who may use the server": ("token", No("a token must not make tokens"), _HERE),
    "sign in to a server": ("login logout", _HERE, No("a script gives its token with each request")),
    "list users": ("user", "GET /users", "list_users"),
    "add a user": ("user", "POST /users", "add_user"),
    "change a user": ("user", "POST /users/N/set", "set_user"),
    "remove a user": ("user", "POST /users/N/remove", "remove_user"),
    "see who did what": ("audit", "GET /audit", "audit_log"),
    "draw a run": (
        No("`watch` draws it in the terminal"),
        "GET /runs/RUN/grid GET /runs/RUN/lanes GET /runs/RUN/series GET /runs/RUN/workers/series GET /runs/RUN/queue",
        _DRAWN,
    ),
    "follow a request": (
        No("a command waits for its answer"),
        "GET /requests/N",
        No("a method waits for its answer"),
    ),
    "plan a run": ("plan", "GET /plans GET /plans/N POST /plans", "plan plan_async list_plans show_plan"),
    "ask the cloud": ("sizes prices quota", _CLOUD, _CLOUD),
    "delete what has no purpose": ("reap", _CLOUD, _CLOUD),
    "emulate the cloud": ("emulator", _HERE, _HERE),
    "move a store": ("store", _HERE, _HERE),
    "see a demo": ("demo", _HERE, _HERE),
    "move files": ("files", _HERE, _HERE),
    "check this machine": ("doctor version", _HERE, "__version__"),
}


def words(column: int) -> set[str]:
    """What the table names in a column. Routes are pairs of words."""
    found: set[str] = set()
    for row in TABLE.values():
        cell = row[column]
        if not isinstance(cell, No):
            found.update(re.findall(r"(?:GET|POST) \S+", cell) if column == 1 else cell.split())
    return found


def commands() -> set[str]:
    return {*entry.NAMES, *(f"pool/{name}" for name in POOL_COMMANDS), *(f"study/{name}" for name in STUDY_COMMANDS)}


def addresses() -> set[str]:
    names = {"run": "RUN", "pool": "POOL", "host": "HOST"}
    found: set[str] = set()
    for route in routes(MagicMock()):
        path = re.sub(r"\{(\w+)[^}]*\}", lambda match: names.get(match[1], "N"), route.path.removeprefix("/api/v1"))
        found.add(f"{route.method} {path}")
    return found


def python() -> set[str]:
    """The public names, and the methods of handles. A twin for asyncio is not an operation of its own."""
    found: set[str] = set()
    for name in evalfleet.__all__:
        value: Any = getattr(evalfleet, name)
        if not name.endswith("Handle"):
            found.add(name)
            continue
        for method, member in vars(value).items():
            public = not method.startswith("_") and not method.endswith("_async")
            if public and (callable(member) or isinstance(member, property)):
                found.add(f"{name}.{method}")
    return found


@pytest.mark.parametrize(
    ("column", "there"), [(0, commands), (1, addresses), (2, python)], ids=["commands", "routes", "python"]
)
def test_every_front_end_has_what_the_table_says_and_nothing_else(column: int, there: Any):
    assert sorted(there() - words(column)) == [], "not in the table: an operation that the others may lack"
    assert sorted(words(column) - there()) == [], "in the table, and gone"


def test_whatever_is_missing_has_a_reason():
    for name, row in TABLE.items():
        missing = [cell for cell in row if isinstance(cell, No)]
        assert len(missing) < 3, name
        assert all(len(cell.reason.split()) > 3 for cell in missing), name


def test_the_options_of_a_benchmark_are_the_same_everywhere():
    names = set(BenchmarkOptions.__struct_fields__)
    assert set(OPTIONS) - {"tasks_file"} == names
    assert names <= set(NewRun.__struct_fields__)
    # In Python `files` is one of the settings that `[run]` of a task file has, too.
    assert names - {"files"} <= set(inspect.signature(submit_benchmark).parameters)
