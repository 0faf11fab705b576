-- Runs of which nothing may be removed, because a person said so.
create table pin (
    run_id    text primary key references run (id),
    pinned_at real not null,
    pinned_by text not null,
    reason    text
) strict, without rowid;

-- What was removed of finished runs to make room. A run that was removed as a whole has no row in `run` any more.
create table removal (
    run_id     text not null,
    part       text not null check (part in ('artifacts', 'logs', 'run')),
    name       text not null,                  -- of the run
    removed_at real not null,                  -- when it began; whatever ended before may be missing
    files      integer not null default 0,
    freed      integer not null default 0,     -- bytes
    reason     text not null,                  -- the rule that asked for it
    primary key (run_id, part)
) strict, without rowid;
