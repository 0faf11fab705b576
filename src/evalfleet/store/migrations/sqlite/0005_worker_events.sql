-- What was said of hosts is little, and looked at several times a second by who watches a run.
create index event_worker on event (run_id, number) where type glob 'worker.*' or type = 'run.taken';
