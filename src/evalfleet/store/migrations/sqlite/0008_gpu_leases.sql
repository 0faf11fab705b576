-- GPUs as somebody last saw them, and what is known of each since.
create table gpu (
    host            text not null,
    uuid            text not null,
    facts           text not null,             -- JSON; what was seen
    seen_at         real not null,
    base_mb         integer,                   -- memory in use when nobody of ours was on it
    released_at     real not null default 0,   -- when the last lease on it ended
    avoid_until     real not null default 0,   -- an attempt found it taken
    quarantine      text,                      -- why nobody gets it
    quarantined_at  real,
    quarantined_for text,                      -- the run whose attempt left it so
    clean_since     real,                      -- since when it looks well in quarantine
    primary key (host, uuid),
    check ((quarantine is null) = (quarantined_at is null))
) strict, without rowid;

-- Who has a GPU, or a part of its memory. An attempt's lease is worth something while the attempt is live and its own lease
-- has not expired; a program's while its process lives.
create table gpu_lease (
    host        text not null,
    uuid        text not null,
    holder      text not null,                 -- an attempt's id, or a program's token
    place       integer not null,
    memory_mb   integer,                       -- null: the whole card
    run_id      text,
    task_number integer,
    number      integer,
    program     text,                          -- of no run: who it is, for a person
    pid         integer,
    born        text,                          -- when the process began, by its machine
    boot        text,
    since_at    real not null,
    seen_at     real not null,
    primary key (host, uuid, holder),
    check ((run_id is null) = (pid is not null))
) strict, without rowid;

create index gpu_lease_holder on gpu_lease (holder);

-- The queue: who waits for GPUs, in the order of arrival. Its row goes when it gets them, or its owner does not want them any more.
create table gpu_ticket (
    number      integer primary key autoincrement,
    owner       text not null,                 -- a run's id, or a program's token
    run_id      text,
    task_number integer,
    program     text,
    pid         integer,
    born        text,
    boot        text,
    gpus        integer not null,
    memory_mb   integer not null,              -- of each; 0: whole cards
    least_mb    integer not null,
    hosts       text not null,                 -- JSON; where it may go
    places      text not null,                 -- JSON; which cards there
    pack        integer not null,
    reserved    text,                          -- JSON [host, [uuid]]
    since_at    real not null,
    seen_at     real not null                  -- when its owner last looked
) strict;

create unique index gpu_ticket_task on gpu_ticket (owner, coalesce(task_number, 0));

-- Counts what may let somebody go on who waits, so that they need not look at the tables again and again.
create table gpu_turn (number integer not null) strict;
insert into gpu_turn values (1);

insert into gpu_lease (host, uuid, holder, place, memory_mb, run_id, task_number, number, since_at, seen_at)
select host, held.value ->> 'uuid', run_id || '.' || task_number || '.' || number, held.value ->> 'index',
       held.value ->> 'memory_mb', run_id, task_number, number, claimed_at, claimed_at
  from attempt, json_each(attempt.devices) held
 where state in ('leased', 'starting', 'running') and devices <> '[]';
