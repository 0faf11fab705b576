-- Further folders of a home, for controllers on other machines. The first one is in `home`.
create table member (
    id        text primary key not null,
    host      text not null,
    path      text not null,
    inode     text not null,
    device    text not null,
    boot      text not null,
    machine   text not null,
    joined_at real not null
) strict, without rowid;

-- Processes that take queued runs. One that lives holds the lock `controller-<id>`.
create table controller (
    id     text primary key not null,
    member text not null,                     -- the folder that it uses; '': the first one
    host   text not null,                     -- name of its machine
    path   text not null,
    pid    integer not null,
    born   text not null,
    boot   text not null,
    since  real not null,
    runs   integer not null                   -- that it drives at a time, at most
) strict, without rowid;

-- Why a controller cannot drive a run that waits.
create table run_wait (
    run_id     text not null,
    controller text not null,
    why        text not null,
    primary key (run_id, controller)
) strict, without rowid;

-- What a run needs of the controller that drives it. Runs without a row were submitted in the first folder.
create table run_need (
    run_id  text primary key not null,
    member  text,                             -- the only folder in which it can be driven; null: any
    why     text not null,                    -- what binds it to that folder; ''
    secrets text not null                     -- JSON: names that its tasks ask for
) strict, without rowid;

alter table child add column controller text not null default '';  -- who looks after it; '': any may
