-- Plain words in place of rung, pardon, wish and doom.
alter table host rename column rung to readiness_check;
update event set data = json_set(json_remove(data, '$.rung'), '$.readiness_check', data ->> '$.rung')
 where type glob 'worker.*' and json_type(data, '$.rung') is not null;

update request set verb = 'unquarantine' where verb = 'pardon';
drop index event_quarantine;
update event set type = 'worker.unquarantined' where type = 'worker.pardoned';
update event set type = 'gpu.unquarantined' where type = 'gpu.pardoned';
update event set type = 'worker.desired' where type = 'worker.wished';
update event set type = 'pool.deleting' where type = 'pool.doomed';
create index event_quarantine on event (run_id, number) where type in ('worker.quarantined', 'worker.unquarantined');
