-- Runs of which nothing may be removed, because a person said so.
create table pin (
    run_id    text collate "C" not null primary key references run (id),
    pinned_at double precision not null,
    pinned_by text collate "C" not null,
    reason    text collate "C"
);

-- What was removed of finished runs to make room. A run that was removed as a whole has no row in `run` any more.
create table removal (
    run_id     text collate "C" not null,
    part       text collate "C" not null check (part in ('artifacts', 'logs', 'run')),
    name       text collate "C" not null,
    removed_at double precision not null,
    files      bigint not null default 0,
    freed      bigint not null default 0,
    reason     text collate "C" not null,
    primary key (run_id, part)
);
