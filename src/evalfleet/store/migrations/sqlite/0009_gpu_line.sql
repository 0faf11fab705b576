-- Since when the owner of a ticket stands in the line of owners. Who is served goes to its end, with all that it still waits for.
alter table gpu_ticket add column line integer not null default 0;
