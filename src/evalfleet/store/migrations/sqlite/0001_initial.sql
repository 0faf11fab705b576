-- One row per submission. `owner` and `epoch` fence controllers: every guarded statement names the epoch.
create table run (
    id         text primary key,
    name       text not null,
    state      text not null check (state in ('queued', 'running', 'paused', 'completed', 'cancelled')),
    reason     text,                           -- JSON {cause, message}; of a pause
    open       integer not null default 0,     -- 1: tasks may still be added
    policy     text not null,                  -- JSON
    folder     text not null,
    base_env   text not null,                  -- JSON
    owner      text,
    epoch      integer not null default 0,
    breaker    text,                           -- JSON; the breaker's state survives its controller
    cancelling integer not null default 0,     -- 1: somebody cancelled it, and its live attempts are being ended
    created_at real not null,
    started_at real,
    ended_at   real,
    check ((state = 'paused') = (reason is not null))
) strict;

create index run_created on run (created_at);

create table task (
    run_id     text not null references run (id),
    number     integer not null,
    key        text not null,
    domain     text not null,
    state      text not null check (state in ('queued', 'running', 'succeeded', 'failed', 'held', 'cancelled')),
    not_before real not null default 0,
    hold_asked integer not null default 0,
    consumed   integer not null default 0,
    lost       integer not null default 0,
    attempts   integer not null default 0,
    expected_s real,
    rank       real not null default 0,        -- placement order: higher first, then number
    spec       text not null,                  -- JSON: command, env, secret names, payload, limits, requests
    score      real,
    success    integer,
    steps      integer,
    metrics    text,                           -- JSON
    kind       text,
    blame      text,
    retryable  integer,
    consumes   integer,
    evidence   text,
    reason     text,
    duration_s real,
    worker     text,
    decided_by integer,                        -- number of the attempt whose verdict or failure decided it
    primary key (run_id, number),
    check ((state = 'succeeded') = (score is not null)),
    check (score is null or (score >= 0 and score <= 1))
) strict, without rowid;

create unique index task_key on task (run_id, key);
-- Holds all that placement filters by, so that thousands of tasks that wait for their time cost no look into the table.
create index task_order on task (run_id, state, rank desc, number, not_before, hold_asked);
create index task_due on task (run_id, not_before) where state = 'queued' and not_before > 0;
create index task_history on task (key, duration_s) where state = 'succeeded';

create table attempt (
    run_id           text not null,
    task_number      integer not null,
    number           integer not null,
    state            text not null check (state in ('leased', 'starting', 'running', 'collecting', 'ended')),
    outcome          text check (outcome in ('ok', 'task_error', 'timeout', 'stalled', 'lost', 'preempted', 'infra_error', 'cancelled')),
    token            text not null,
    lease_expires_at real not null,
    host             text not null,
    worker           text not null,
    gpus             integer not null default 0,
    memory_mb        integer not null default 0,
    claimed_at       real not null,
    started_at       real,
    ready_at         real,
    ended_at         real,
    duration_s       real,
    step             integer,
    cost_usd         real not null default 0,
    reported_usd     real not null default 0,
    last_event       integer not null default -1,
    end_record       text,                     -- JSON; what the runner saw
    score            real,
    success          integer,
    steps            integer,
    metrics          text,
    kind             text,
    blame            text,
    retryable        integer,
    consumes         integer,
    evidence         text,
    judge_version    integer,
    counted          text check (counted in ('consumed', 'lost')), -- for which of its task's counts it stands
    primary key (run_id, task_number, number),
    foreign key (run_id, task_number) references task (run_id, number),
    check ((state in ('collecting', 'ended')) = (outcome is not null)),
    check ((outcome is 'ok') = (score is not null)),
    check ((kind is not null) = (outcome is not null and outcome <> 'ok'))
) strict, without rowid;

create index attempt_unended on attempt (run_id, state) where state <> 'ended';
create index attempt_host on attempt (host, memory_mb) where state in ('leased', 'starting', 'running');

-- One writer at a time, so numbers become visible in their order.
create table event (
    number  integer primary key autoincrement,
    run_id  text not null,
    at      real not null,
    type    text not null,
    task    text,
    attempt text,
    data    text not null
) strict;

create index event_run on event (run_id, number);

-- What other processes asked the owner of a run to do.
create table request (
    number    integer primary key autoincrement,
    run_id    text not null references run (id),
    verb      text not null check (verb in ('cancel', 'hold', 'release', 'retry')),
    args      text not null,
    asked_by  text not null,
    asked_at  real not null,
    obeyed_at real,
    answer    text                             -- JSON
) strict;

create index request_pending on request (run_id) where obeyed_at is null;
