-- 1: its wish holds although work is on the machine; a person said so.
alter table host add column forced integer not null default 0;
