"""The records and words of evalfleet.

Every other module speaks in these types; this one imports nothing of ours.
Records are frozen. Enums are text, so that the same word stands in Python, SQL, JSON and on the page.
Raw seconds carry the suffix ``_s``; moments are seconds since the epoch (UTC) and carry the suffix ``_at``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from evalfleet.model.people import AccessToken as AccessToken
from evalfleet.model.people import AuditRow as AuditRow
from evalfleet.model.people import Ownership as Ownership
from evalfleet.model.people import Role as Role
from evalfleet.model.people import RunFilter as RunFilter
from evalfleet.model.people import User as User
from evalfleet.model.pools import DesiredState as DesiredState
from evalfleet.model.pools import HostState as HostState
from evalfleet.model.pools import Pool as Pool
from evalfleet.model.pools import PoolHost as PoolHost
from evalfleet.model.pools import PoolState as PoolState
from evalfleet.model.pools import RunDemand as RunDemand
from evalfleet.model.pools import StoredTier as StoredTier
from evalfleet.model.pools import TierDemand as TierDemand

JsonObject = dict[str, Any]
PYTHON = "{python}"  # as a task's program: the Python that has what the run's tasks need, on whatever host they start


class RunState(StrEnum):
    QUEUED = "queued"  # submitted, driven by nobody yet
    RUNNING = "running"  # a controller drives it, or did when it was killed
    PAUSED = "paused"  # admits no work; `reason` says why and what to do
    COMPLETED = "completed"  # every task is final or held
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in (RunState.COMPLETED, RunState.CANCELLED)


class TaskState(StrEnum):
    QUEUED = "queued"  # waits for a worker, not before `not_before`
    RUNNING = "running"  # has at least one live attempt
    DONE = "done"  # has a verdict, whatever its score
    FAILED = "failed"  # no verdict; the task itself is blamed
    HELD = "held"  # no verdict; needs a person
    CANCELLED = "cancelled"


FINAL_TASK_STATES = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})


class AttemptState(StrEnum):
    LEASED = "leased"  # claimed in the store; the runner may not know it yet
    STARTING = "starting"  # its process runs and has not said that it is ready
    RUNNING = "running"
    COLLECTING = "collecting"  # judged and stored; its files are on their way
    ENDED = "ended"


LIVE_ATTEMPT_STATES = frozenset({AttemptState.LEASED, AttemptState.STARTING, AttemptState.RUNNING})


class Outcome(StrEnum):
    OK = "ok"
    TASK_ERROR = "task_error"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    LOST = "lost"
    PREEMPTED = "preempted"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"


class Blame(StrEnum):
    TASK = "task"
    WORKER = "worker"
    POOL = "pool"
    BACKEND = "backend"
    RUN = "run"


class Kind(StrEnum):
    """Closed set of failure causes. `core.failures` maps each to blame, retry and outcome."""

    TASK_ERROR = "task_error"  # the result file says {"error": "..."}
    BAD_EXIT = "bad_exit"  # exit status other than 0
    SIGNALLED = "signalled"  # ended by a signal that was not ours
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"  # reached the wall limit while it still progressed
    STALL = "stall"  # no progress for too long
    START_TIMEOUT = "start_timeout"  # did not say {"ready": true} in time
    COST_LIMIT = "cost_limit"  # cost more than its `max_cost_usd`
    RESULT_MISSING = "result_missing"
    RESULT_UNREADABLE = "result_unreadable"
    LAUNCH_FAILED = "launch_failed"  # the command could not be executed
    DISK_FULL = "disk_full"
    HOST_FAILED = "host_failed"  # the host could not start it: no processes, memory or files left, or an I/O error
    ENVIRONMENT_FAILED = "environment_failed"  # the result says that the task's world did not work
    GPU_TAKEN = "gpu_taken"  # somebody else was on the leased GPU; the program was not started
    SERVICE_FAILED = "service_failed"  # a service that all tasks need (a model's endpoint) did not answer
    SERVICE_REFUSED = (
        "service_refused"  # it answered that it will not serve us: the key, the contract, the money, the model
    )
    BAD_FLAG = "bad_flag"  # of a watched server, as the next four: it does not take its flags or their combination
    PORT_TAKEN = "port_taken"  # somebody else has its port
    DOWNLOAD = "download"  # what it loads could not be fetched
    STARTUP_TIMEOUT = "startup_timeout"  # it was not ready within its `ready_timeout`
    CRASH = "crash"  # it ended before the command did
    RUNNER_LOST = "runner_lost"  # the runner died under the attempt
    WORKER_LOST = "worker_lost"  # the host was given up
    PREEMPTED = "preempted"
    BACKEND_ERROR = "backend_error"  # no runner could be started or reached for the launch
    CANCELLED = "cancelled"


class WorkerState(StrEnum):
    READY = "ready"
    BUSY = "busy"
    SUSPECT = "suspect"  # its host does not answer
    QUARANTINED = "quarantined"  # its host must prove itself before it gets work
    DRAINING = "draining"  # its host will be taken away, and gets no more
    LOST = "lost"  # its host is given up; it may come back
    GONE = "gone"


class GpuRequestState(StrEnum):
    """Of a request for GPUs, by an attempt or by a program of a person."""

    WAITING = "waiting"  # has a ticket in the queue
    LEASED = "leased"
    WITHDRAWN = "withdrawn"  # not asked for any more, or its owner is dead
    RELEASED = "released"


class AlertState(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


class Distribution(StrEnum):
    QUEUE = "queue"  # a free worker takes the best waiting task
    ROUND_ROBIN = "round-robin"  # task i belongs to worker i mod N


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class PauseCause(StrEnum):
    BREAKER = "breaker"
    BUDGET = "budget"
    SECRET = "secret"
    QUARANTINE = "quarantine"  # no host is left that may work
    STUDY = "study"  # its baseline failed, or one failure came again and again
    OPERATOR = "operator"


class Verb(StrEnum):
    """What another process may ask the owner of a run to do."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    AMEND = "amend"
    QUARANTINE = "quarantine"
    UNQUARANTINE = "unquarantine"
    WITHDRAW = "withdraw"  # end live attempts that are stuck, so that other workers try their tasks


class Requests(Struct, frozen=True, kw_only=True):
    """What one task needs of its host while it runs."""

    gpus: int = 0
    memory_mb: int = 0
    gpu_memory_mb: int = 0  # of each GPU; 0: whole cards, else others may have the rest of them meanwhile


class Device(Struct, frozen=True, kw_only=True):
    """A GPU: known by its `uuid`, shown to programs by its place on the PCI bus."""

    index: int
    uuid: str
    memory_mb: int | None = None  # how much of it is leased; None: the whole card


class Tools(Struct, frozen=True, kw_only=True):
    """What a run's tasks need of another machine than this one, besides the runner; brought and proved there."""

    shipped: tuple[str, ...] = ("evalfleet",)  # packages that this machine has and brings, perhaps with [extras]
    bare: tuple[str, ...] = ()  # requirements that are installed without what they require in turn
    benchmark: str | None = None  # the machine must be ready for it before it gets work
    settings: JsonObject = field(default_factory=dict[str, Any])  # of this machine, for the benchmark there
    secrets: tuple[str, ...] = ()  # names of variables that make the machine ready; the tasks do not get them


MOST_PRIORITY = 100  # of a run; the least is as far below 0


class Policy(Struct, frozen=True, kw_only=True):
    """How a run treats its tasks. Part of the run; changes only in `budget_usd`, `workers`, `priority` and a study's trials."""

    attempts: int = 3
    timeout_s: float = 3600.0
    stall_s: float | None = None
    start_timeout_s: float | None = None
    budget_usd: float | None = None
    max_cost_usd: float | None = None  # of one attempt, where its task states none
    accept: float = 1.0
    exit_is_verdict: bool = False
    timeout_is_verdict: bool = False
    result_required: bool = False
    progress: str = "output"  # what counts as progress: "output" (event lines and output) or "events" (event lines)
    breaker: bool = True
    max_lost: int = 5
    retry_base_s: float = 1.0
    retry_cap_s: float = 300.0
    workers: int = 0  # 0: as many as the machine has CPUs; submitting fills it in
    distribution: Distribution = Distribution.QUEUE
    files: tuple[str, ...] = ()
    pool: str | None = None  # whose hosts it uses; None: this machine
    tools: Tools | None = None  # what hosts over SSH need for its tasks; None: nothing
    canary: tuple[str, ...] = ()  # what a host must run well to prove itself; (): just a shell
    study: JsonObject | None = None  # of a study: its file; trials are added while the run is open
    gpus: tuple[int, ...] = ()  # which GPUs of a host it may use, by index; (): all
    speculate: bool = False  # near the end, double tasks on hosts that are slow against their peers
    priority: int = 0  # among the runs of its owner: higher goes first
    gpu_pack: bool = False  # take the fullest GPUs that will do, so that large sets stay free


class HostWork(Struct, frozen=True, kw_only=True):
    """An attempt that would be lost with its host: it is live there, or its files are not collected yet."""

    run_id: str
    key: str  # of its task
    state: AttemptState


class TaskSpec(Struct, frozen=True, kw_only=True):
    """One piece of wanted work, as submitted. Secrets are names only."""

    key: str
    domain: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    payload: Any = None
    timeout_s: float | None = None
    stall_s: float | None = None
    start_timeout_s: float | None = None
    requests: Requests = Requests()
    max_cost_usd: float | None = None  # of one attempt: its worker's time and what it reports; its runner ends it there
    gpu_env: str = "index"  # how CUDA_VISIBLE_DEVICES names the leased GPUs: "index" (in PCI order) or "uuid"
    repeats: str | None = None  # the key in the task file, where each task is played several times
    seed: int | None = None  # which of the repetitions


class Run(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: RunState
    reason: JsonObject | None  # of a pause: {"cause": PauseCause, "message": what happened and what to do}
    open: bool
    policy: Policy
    folder: str  # working folder of local attempts: where the task file lies
    base_env: dict[str, str]  # the few plain variables (PATH, HOME, ...) that local attempts inherit
    driver: str | None  # the process that drives it, as it signed; `epoch` fences drivers
    epoch: int
    cancelling: bool  # somebody cancelled it, and its live attempts are being ended
    created_at: float
    started_at: float | None
    ended_at: float | None
    pausing: JsonObject | None = None  # an operator paused it, and why, while its live attempts end
    owner: str = ""  # the user whose run it is; "": not known, from before there were users
    project: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])


class Verdict(Struct, frozen=True, kw_only=True):
    """What the benchmark's checker said."""

    score: float
    success: bool
    steps: int | None = None
    metrics: JsonObject = field(default_factory=dict[str, Any])


class Failure(Struct, frozen=True, kw_only=True):
    """Judged cause of an attempt without a verdict."""

    kind: Kind
    blame: Blame
    retryable: bool
    consumes: bool  # whether it uses up one of the task's own attempts
    evidence: str  # one line that shows why


class Task(Struct, frozen=True, kw_only=True):
    run_id: str
    number: int  # its place in the submission, from 1
    spec: TaskSpec
    state: TaskState
    not_before: float
    hold_asked: bool  # an operator wants it held once its live attempt is over
    consumed: int  # attempts that count against `Policy.attempts`
    lost: int  # attempts that did not count, towards `Policy.max_lost`
    attempts: int  # all attempts ever
    expected_s: float | None
    verdict: Verdict | None
    failure: Failure | None  # of its last judged attempt, where it has no verdict
    reason: str | None  # why held or failed, for a person
    duration_s: float | None  # of the attempt that decided it
    worker: str | None  # of the attempt that decided it, or the latest

    @property
    def key(self) -> str:
        return self.spec.key


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a task on one worker. `id` is `run.task.number` and never re-used."""

    id: str
    run_id: str
    task_number: int
    number: int
    state: AttemptState
    outcome: Outcome | None
    token: str  # the lease's fence; fixed for the attempt's life
    lease_expires_at: float
    host: str
    worker: str
    requests: Requests
    claimed_at: float
    started_at: float | None
    ready_at: float | None
    ended_at: float | None
    duration_s: float | None
    step: int | None
    cost_usd: float  # worker price x time + what the task reported; of a lost one: until it was seen gone
    reported_usd: float
    last_event: int  # the runner's last event number that is stored
    end: JsonObject | None  # the runner's end record, as evidence for later judging
    verdict: Verdict | None
    failure: Failure | None
    judge_version: int | None
    devices: tuple[Device, ...] = ()  # the GPUs that are its own while it is live
    price_usd_per_hour: float = 0.0  # of its worker, as its host said at the claim


class Event(Struct, frozen=True, kw_only=True):
    """Numbered, append-only fact. `number` rises without gaps becoming visible out of order."""

    number: int
    run_id: str
    at: float
    type: str
    task: str | None  # the task's key
    attempt: str | None
    data: JsonObject


class Request(Struct, frozen=True, kw_only=True):
    """What somebody asked the owner of a run to do."""

    number: int
    run_id: str
    verb: Verb
    args: JsonObject
    asked_by: str
    asked_at: float


class EndRecord(Struct, frozen=True, kw_only=True):
    """How an attempt's process ended, as its runner saw it. Facts only; `core` judges."""

    cause: str  # exited, cancelled, timeout, stall, start_timeout, launch_failed, gpu_taken, expired, runner_lost, worker_lost, …
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None  # of a launch failure or lost runner: the system's words
    errno: int | None = None
    oom: bool = False
    disk_full: bool = False
    result: Any = None  # the parsed result file, of any JSON type
    has_result: bool = False
    result_error: str | None = None  # why a present result file could not be read
    steps: int | None = None
    reported_usd: float = 0.0
    started_at: float | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    duration_s: float = 0.0
    idle_s: float = 0.0  # time without progress when it ended
    tail: str = ""  # last lines of stderr, else of stdout; redacted
    cpu_s: float | None = None
    max_rss_mb: float | None = None
    artifacts: tuple[JsonObject, ...] = ()  # {"path", "size", "secret": true where one was found}
