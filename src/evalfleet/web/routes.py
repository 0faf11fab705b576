"""All addresses of the server in one table: who may use each, and what it takes. The OpenAPI document is made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from msgspec import Struct

from evalfleet.answers.alerts import AlertPage, ChannelTests
from evalfleet.answers.attempts import AttemptFacts, LogPiece, TaskFacts
from evalfleet.answers.comparison import Comparison
from evalfleet.answers.gpus import GpuList, UnquarantinedGpu
from evalfleet.answers.home import ControllerList
from evalfleet.answers.machines import MachineLog, MachineLogList
from evalfleet.answers.plans import Plan, Plans
from evalfleet.answers.pools import BackendList, CreatedPool, DeletedPool, PoolFacts, PoolList, PoolOrder
from evalfleet.answers.runs import (
    EventPage,
    FailurePage,
    HostSeriesList,
    Lanes,
    Queue,
    RunFacts,
    RunPage,
    ScoreSeries,
    TaskGrid,
    TaskPage,
)
from evalfleet.answers.server import BenchmarkList, Me, RequestAnswer
from evalfleet.answers.shares import ShareFacts, ShareName, ShareRow
from evalfleet.answers.studies import StudyFacts, StudyList, SubmittedStudy
from evalfleet.answers.team import AuditPage, UserList, UserRow
from evalfleet.model import RunState, TaskState
from evalfleet.operations.housekeeping.pins import PinnedRun
from evalfleet.operations.housekeeping.prune import Pruned
from evalfleet.operations.runs.steer import Amended, Cancelled, ChangedTasks, Pausing, Quarantine
from evalfleet.operations.runs.studies import MoreTrials
from evalfleet.operations.runs.submit import Submitted
from evalfleet.web import params
from evalfleet.web.context import Site
from evalfleet.web.handlers.desktops import Desktops
from evalfleet.web.handlers.feed import Streaming
from evalfleet.web.handlers.files import Files
from evalfleet.web.handlers.gpus import Gpus, OneGpu
from evalfleet.web.handlers.housekeeping import Housekeeping, Prune
from evalfleet.web.handlers.machine_logs import MOST_LINES, MachineLogs
from evalfleet.web.handlers.plans import NewPlan, PlanHandlers
from evalfleet.web.handlers.pools import NewPool, OfPool, Pools, Size
from evalfleet.web.handlers.run_changes import (
    Acting,
    Amendment,
    Keys,
    NewRun,
    Only,
    PauseReason,
    Resumed,
    RunAmendment,
    WorkerName,
)
from evalfleet.web.handlers.run_queries import Reading
from evalfleet.web.handlers.shares import NewShare, ShareHandlers
from evalfleet.web.handlers.studies import AddTrials, NewStudy, Parallel, Studies, StudyAmended
from evalfleet.web.handlers.users import NewUser, UserChange, Users

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

API = "/api/v1"
_RUN = f"{API}/runs/{{run}}"
_TASK = f"{_RUN}/tasks/{{task:\\d+}}"
_ATTEMPT = f"{_TASK}/attempts/{{attempt:\\d+}}"
_HOST = f"{API}/pools/{{pool}}/hosts/{{host}}"
_STATES = tuple(str(state) for state in RunState)
_TASK_STATES = tuple(str(state) for state in TaskState)


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    kind: str = "string"  # or integer, number
    words: tuple[str, ...] = ()
    many: bool = False
    least: int | None = None
    most: int | None = None
    required: bool = False


class Route(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    handler: Handler
    text: str
    operation: str | None = "look"  # of `core.rights`; None: it needs no token
    control: str | None = None  # the operation that it is with `control=1`
    query: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    answers: tuple[type[msgspec.Struct], ...] = ()  # one of these, as JSON
    media: str = "application/json"
    status: int = 200


LIMIT = Parameter(name="limit", kind="integer", least=1, most=1000)
CURSOR = Parameter(name="cursor")
PAGE = (LIMIT, CURSOR)


def routes(site: Site) -> list[Route]:
    """Those of the API."""
    return [
        *_runs(Reading(site)),
        *_reading(Reading(site)),
        *_files(Files(site)),
        *_streaming(Streaming(site), Desktops(site)),
        *_acting(Acting(site)),
        *_studies(Studies(site)),
        *_pools(Pools(site)),
        *_machine_logs(MachineLogs(site)),
        *_gpus(Gpus(site)),
        *_plans(PlanHandlers(site)),
        *_housekeeping(Housekeeping(site)),
        *_users(Users(site)),
        *_shares(ShareHandlers(site)),
    ]


def _get(path: str, handler: Handler, answer: type[msgspec.Struct], text: str, *query: Parameter) -> Route:
    return Route(method="GET", path=path, handler=handler, text=text, query=query, answers=(answer,))


def _get_media(path: str, handler: Handler, media: str, text: str, *query: Parameter) -> Route:
    """What is not JSON."""
    return Route(method="GET", path=path, handler=handler, text=text, query=query, media=media)


def _runs(reading: Reading) -> list[Route]:
    whole = Parameter(name="after", kind="integer", least=0)
    before = Parameter(name="before", kind="integer", least=0)
    search = Parameter(name="search")
    host, since = Parameter(name="host"), Parameter(name="since_at", kind="number")
    states = Parameter(name="state", words=_STATES, many=True)
    task_states = Parameter(name="state", words=_TASK_STATES, many=True)
    named = [Parameter(name=name) for name in ("domain", "key")]
    whose = [Parameter(name="owner"), Parameter(name="project"), Parameter(name="tag", many=True)]
    kinds = [Parameter(name=name) for name in ("kind", "blame")]
    chosen = [Parameter(name="type"), Parameter(name="task"), Parameter(name="order", words=("asc", "desc"))]
    return [
        _get(f"{API}/controllers", reading.controllers, ControllerList, "who drives which runs, and what waits"),
        _get(f"{API}/runs", reading.runs, RunPage, "the runs, newest first", *PAGE, states, search, *whose),
        _get(_RUN, reading.run, RunFacts, "one run: scores, cost, workers, what it waits for"),
        _get(f"{_RUN}/tasks", reading.tasks, TaskPage, "its tasks", *PAGE, task_states, search, *named),
        _get(f"{_RUN}/grid", reading.grid, TaskGrid, "all its tasks, by columns"),
        _get(
            f"{_RUN}/lanes", reading.lanes, Lanes, "its attempts by worker", Parameter(name="after_at", kind="number")
        ),
        _get(f"{_RUN}/series", reading.series, ScoreSeries, "score and cost over time"),
        _get(
            f"{_RUN}/workers/series",
            reading.host_series,
            HostSeriesList,
            "how busy its hosts are and were",
            host,
            since,
        ),
        _get(f"{_RUN}/failures", reading.failures, FailurePage, "what failed, and why", *PAGE, *kinds),
        _get(f"{_RUN}/queue", reading.queue, Queue, "what starts next", LIMIT),
        _get(f"{_RUN}/events", reading.events, EventPage, "its numbered events", *PAGE, whole, before, *chosen),
    ]


def _reading(reading: Reading) -> list[Route]:
    sides = [Parameter(name=name, required=True) for name in ("a", "b")]
    sides.append(Parameter(name="different", words=("allowed",)))
    alert_state = Parameter(name="state", words=("firing", "resolved"))
    pieces = [Parameter(name=name, kind="integer", least=0) for name in ("offset",)]
    sizes = [Parameter(name=name, kind="integer", least=1, most=1 << 20) for name in ("limit", "tail")]
    return [
        _get(f"{API}/me", reading.me, Me, "the current user, and facts about this server"),
        _get(_TASK, reading.task, TaskFacts, "one task with all its attempts"),
        _get(_ATTEMPT, reading.attempt, AttemptFacts, "one attempt with its film and files"),
        _get(f"{_ATTEMPT}/logs/{{stream:stdout|stderr}}", reading.log, LogPiece, "what it wrote", *pieces, *sizes),
        _get(f"{API}/compare", reading.compare, Comparison, "whether run b is better than run a", *sides),
        _get(f"{API}/benchmarks", reading.benchmarks, BenchmarkList, "the benchmarks and agents"),
        _get(f"{API}/backends", reading.backends, BackendList, "the kinds of pools, and the options that each takes"),
        _get(f"{API}/pools", reading.pools, PoolList, "the pools"),
        _get(f"{API}/pools/{{pool}}", reading.pool, PoolFacts, "one pool and its hosts"),
        _get(
            f"{API}/alerts",
            reading.alerts,
            AlertPage,
            "alerts, newest first",
            *PAGE,
            alert_state,
            Parameter(name="run"),
        ),
        _get(f"{API}/requests/{{request:\\d+}}", reading.answer, RequestAnswer, "what became of a request"),
    ]


def _machine_logs(logs: MachineLogs) -> list[Route]:
    query = (
        Parameter(name="lines", kind="integer", least=1, most=MOST_LINES),
        Parameter(name="kept", words=("0", "1")),
    )
    return [
        _get(f"{_HOST}/logs", logs.names, MachineLogList, "the logs that there are of a machine"),
        _get(f"{_HOST}/logs/{{log:.+}}", logs.read, MachineLog, "one of them: boot, cloud-init, docker, …", *query),
    ]


def _files(files: Files) -> list[Route]:
    any_type = "application/octet-stream"
    return [
        _get_media(f"{_ATTEMPT}/files/{{path:.+}}", files.artifact, any_type, "a file that it left"),
        _get_media(f"{_ATTEMPT}/screenshot", files.screenshot, any_type, "its newest screenshot"),
    ]


def _streaming(streaming: Streaming, desktops: Desktops) -> list[Route]:
    query = (Parameter(name="after", kind="integer", least=0), Parameter(name="run", many=True))
    control = Parameter(name="control", words=("0", "1"))
    watch = _watched(f"{_ATTEMPT}/vnc", desktops.vnc, "its live desktop (WebSocket)", "run.take-over", control)
    shown = "the screen of a pool's host (WebSocket)"
    picture = "what that screen shows now"
    return [
        watch,
        _watched(f"{_HOST}/vnc", desktops.host_vnc, shown, "pool.take-over", control),
        _get_media(f"{_HOST}/screenshot", desktops.host_screenshot, "application/octet-stream", picture),
        _get_media(f"{API}/events", streaming.events, "text/event-stream", "all new events, as they come", *query),
    ]


def _watched(path: str, handler: Handler, text: str, control: str, query: Parameter) -> Route:
    return Route(
        method="GET", path=path, handler=handler, text=text, control=control, query=(query,), media="websocket"
    )


def _post(
    operation: str,
    path: str,
    handler: Handler,
    body: type[msgspec.Struct],
    answer: type[msgspec.Struct],
    text: str,
    *others: type[msgspec.Struct],
    status: int = 200,
) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        text=text,
        operation=operation,
        body=body,
        answers=(answer, *others),
        status=status,
    )


def _acting(act: Acting) -> list[Route]:
    return [
        _post("run.submit", f"{API}/runs", act.submit, NewRun, Submitted, "make a run", status=201),
        _post(
            "run.pause", f"{_RUN}/pause", act.pause, PauseReason, Pausing, "admit no more work; what runs ends first"
        ),
        _post("run.resume", f"{_RUN}/resume", act.resume, Amendment, Resumed, "go on with it"),
        _post("run.cancel", f"{_RUN}/cancel", act.cancel, params.Nothing, Cancelled, "end it and its running tasks"),
        _post("run.retry", f"{_RUN}/retry", act.retry, Only, ChangedTasks, "give failed or held tasks new attempts"),
        _post("run.hold", f"{_RUN}/hold", act.hold, Keys, ChangedTasks, "keep tasks from starting"),
        _post("run.release", f"{_RUN}/release", act.release, Keys, ChangedTasks, "let held tasks start again"),
        _post("run.amend", f"{_RUN}/amend", act.amend, RunAmendment, Amended, "change its workers, budget or priority"),
        _post(
            "run.quarantine",
            f"{_RUN}/quarantine",
            act.quarantine,
            WorkerName,
            Quarantine,
            "give a worker or host no more work",
        ),
        _post(
            "run.unquarantine",
            f"{_RUN}/unquarantine",
            act.unquarantine,
            WorkerName,
            Quarantine,
            "let a worker or host work again",
        ),
        _post(
            "alerts.test",
            f"{API}/alerts/test",
            act.test_alerts,
            params.Nothing,
            ChannelTests,
            "send a test message to every channel",
        ),
    ]


def _studies(found: Studies) -> list[Route]:
    one = f"{API}/studies/{{run}}"
    return [
        _get(f"{API}/studies", found.listed, StudyList, "the studies, newest first"),
        _get(one, found.one, StudyFacts, "one study: its trials, and the best so far"),
        _post("study.submit", f"{API}/studies", found.submit, NewStudy, SubmittedStudy, "make a study", status=201),
        _post("study.add-trials", f"{one}/add-trials", found.add_trials, AddTrials, MoreTrials, "let it try more"),
        _post(
            "study.retry-failed",
            f"{one}/retry-failed",
            found.retry_failed,
            params.Nothing,
            ChangedTasks,
            "give failed trials new attempts",
        ),
        _post(
            "study.parallel",
            f"{one}/parallel",
            found.parallel,
            Parallel,
            StudyAmended,
            "change how many trials run at a time",
        ),
    ]


def _pools(found: Pools) -> list[Route]:
    one = f"{API}/pools/{{pool}}"
    return [
        _post("pool.create", f"{API}/pools", found.create, NewPool, CreatedPool, "make a pool", status=201),
        _post("pool.start", f"{one}/start", found.start, OfPool, PoolOrder, "start its stopped machines, or one"),
        _post(
            "pool.stop",
            f"{one}/stop",
            found.stop,
            OfPool,
            PoolOrder,
            "deallocate its machines, or one; their disks stay",
        ),
        _post("pool.scale", f"{one}/scale", found.scale, Size, PoolOrder, "give it another size, or other limits"),
        _post(
            "pool.delete",
            f"{one}/delete",
            found.delete,
            OfPool,
            PoolOrder,
            "delete it with the machines that it made, or one of them",
            DeletedPool,
        ),
    ]


def _gpus(found: Gpus) -> list[Route]:
    return [
        _get(f"{API}/gpus", found.listed, GpuList, "the GPUs, their holders and the queue"),
        _post(
            "gpu.unquarantine",
            f"{API}/gpus/unquarantine",
            found.unquarantine,
            OneGpu,
            UnquarantinedGpu,
            "let a GPU in quarantine be leased again",
        ),
    ]


def _shares(found: ShareHandlers) -> list[Route]:
    return [
        _get(f"{API}/shares", found.listed, ShareFacts, "what users and projects may have, and what they have"),
        _post("share.set", f"{API}/shares/set", found.set, NewShare, ShareRow, "say what a user or project may have"),
        _post(
            "share.remove",
            f"{API}/shares/remove",
            found.remove,
            ShareName,
            ShareName,
            "forget what was said of a user or project",
        ),
    ]


def _plans(found: PlanHandlers) -> list[Route]:
    return [
        _get(f"{API}/plans", found.listed, Plans, "the newest plans, with what became of their runs"),
        _get(f"{API}/plans/{{plan}}", found.one, Plan, "one plan"),
        _post("plan.make", f"{API}/plans", found.new, NewPlan, Plan, "plan a run; nothing is bought", status=201),
    ]


def _housekeeping(found: Housekeeping) -> list[Route]:
    return [
        _post("run.pin", f"{_RUN}/pin", found.pin, PauseReason, PinnedRun, "let nothing of it be removed"),
        _post("run.unpin", f"{_RUN}/unpin", found.unpin, params.Nothing, PinnedRun, "take its pin away"),
        _post("home.prune", f"{API}/prune", found.prune, Prune, Pruned, "remove files of finished runs"),
    ]


def _users(found: Users) -> list[Route]:
    one = f"{API}/users/{{user}}"
    asked = [Parameter(name=name) for name in ("user", "operation", "object")]
    return [
        _admins(f"{API}/users", found.listed, UserList, "the users and their roles", "user.list"),
        _post("user.add", f"{API}/users", found.add, NewUser, UserRow, "add a user", status=201),
        _post("user.set", f"{one}/set", found.set, UserChange, UserRow, "change a user's role, or disable a user"),
        _post("user.remove", f"{one}/remove", found.remove, params.Nothing, UserRow, "remove a user with all tokens"),
        _admins(f"{API}/audit", found.audit, AuditPage, "who did what, newest first", "audit.read", *PAGE, *asked),
    ]


def _admins(
    path: str, handler: Handler, answer: type[msgspec.Struct], text: str, operation: str, *query: Parameter
) -> Route:
    return Route(
        method="GET", path=path, handler=handler, text=text, operation=operation, query=query, answers=(answer,)
    )
