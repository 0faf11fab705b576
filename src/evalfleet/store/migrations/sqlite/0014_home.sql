-- Who this home is: a random id, and which file its database was when it was last used. A copy is another file.
create table home (
  only integer primary key default 1 check (only = 1),
  id text not null,
  label text not null,
  legacy text,
  former text not null,
  path text not null,
  inode text not null,
  device text not null,
  boot text not null,
  machine text not null
);
