-- Further folders of a home, for controllers on other machines. The first one is in `home`.
create table member (
    id        text collate "C" primary key,
    host      text collate "C" not null,
    path      text collate "C" not null,
    inode     text collate "C" not null,
    device    text collate "C" not null,
    boot      text collate "C" not null,
    machine   text collate "C" not null,
    joined_at double precision not null
);

-- Processes that take queued runs. One that lives holds the lock `controller-<id>`.
create table controller (
    id     text collate "C" primary key,
    member text collate "C" not null,
    host   text collate "C" not null,
    path   text collate "C" not null,
    pid    bigint not null,
    born   text collate "C" not null,
    boot   text collate "C" not null,
    since  double precision not null,
    runs   bigint not null
);

-- Why a controller cannot drive a run that waits.
create table run_wait (
    run_id     text collate "C" not null,
    controller text collate "C" not null,
    why        text collate "C" not null,
    primary key (run_id, controller)
);

-- What a run needs of the controller that drives it. Runs without a row were submitted in the first folder.
create table run_need (
    run_id  text collate "C" primary key,
    member  text collate "C",
    why     text collate "C" not null,
    secrets text collate "C" not null
);

alter table child add column controller text collate "C" not null default '';
