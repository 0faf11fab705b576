-- What more an operator may ask of the owner of a run: SQLite cannot widen a check, so the table is made anew.
create table request_wider (
    number    integer primary key autoincrement,
    run_id    text not null references run (id),
    verb      text not null check (verb in
                  ('cancel', 'hold', 'release', 'retry', 'pause', 'resume', 'amend', 'quarantine', 'pardon')),
    args      text not null,
    asked_by  text not null,
    asked_at  real not null,
    obeyed_at real,
    answer    text                             -- JSON
) strict;

insert into request_wider select number, run_id, verb, args, asked_by, asked_at, obeyed_at, answer from request;
drop table request;
alter table request_wider rename to request;
create index request_pending on request (run_id) where obeyed_at is null;

-- Who may use the dashboard and its API. The token itself is nowhere: only its SHA-256, and it is 256 random bits.
create table access_token (
    id         text primary key,
    name       text not null,
    role       text not null check (role in ('reader', 'operator')),
    digest     text not null unique,
    created_at real not null,
    expires_at real                            -- null: never
) strict, without rowid;

-- Alerts are few among many events; whoever begins to watch asks for all of them.
create index event_alert on event (number) where type >= 'alert.' and type < 'alert/';
create index event_quarantine on event (run_id, number) where type in ('worker.quarantined', 'worker.pardoned');
