-- A task that has a verdict is done, whatever its score. SQLite cannot change a check, so the table is made anew.
create table task_new (
    run_id     text not null references run (id),
    number     integer not null,
    key        text not null,
    domain     text not null,
    state      text not null check (state in ('queued', 'running', 'done', 'failed', 'held', 'cancelled')),
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
    check ((state = 'done') = (score is not null)),
    check (score is null or (score >= 0 and score <= 1))
) strict, without rowid;

insert into task_new
select run_id, number, key, domain, case state when 'succeeded' then 'done' else state end, not_before, hold_asked, consumed,
       lost, attempts, expected_s, rank, spec, score, success, steps, metrics, kind, blame, retryable, consumes, evidence,
       reason, duration_s, worker, decided_by
  from task;
drop table task;
alter table task_new rename to task;
create unique index task_key on task (run_id, key);
-- Holds all that placement filters by, so that thousands of tasks that wait for their time cost no look into the table.
create index task_order on task (run_id, state, rank desc, number, not_before, hold_asked);
create index task_due on task (run_id, not_before) where state = 'queued' and not_before > 0;
create index task_history on task (key, duration_s) where state = 'done';

update event set type = 'task.done' where type = 'task.succeeded';
