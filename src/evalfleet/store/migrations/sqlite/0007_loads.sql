-- How busy hosts were: one row for ten minutes of a host, its samples packed (see core/loads.py).
create table host_load (
    host    text not null,
    begins  integer not null,                  -- seconds since 1970; a multiple of 600
    thin    integer not null default 0,        -- 1: a sample a minute is left
    samples blob not null,
    primary key (host, begins)
) strict, without rowid;

create index host_load_old on host_load (thin, begins);

-- What may be asked of the owner of a run grows; which words there are is known where a request is written.
create table request_any (
    number    integer primary key autoincrement,
    run_id    text not null references run (id),
    verb      text not null,
    args      text not null,
    asked_by  text not null,
    asked_at  real not null,
    obeyed_at real,
    answer    text                             -- JSON
) strict;

insert into request_any select number, run_id, verb, args, asked_by, asked_at, obeyed_at, answer from request;
drop table request;
alter table request_any rename to request;
create index request_pending on request (run_id) where obeyed_at is null;

-- What a reaper found without a purpose: the home's own events are few, and looked for often.
create index event_reap on event (number) where type >= 'reap.' and type < 'reap/';
