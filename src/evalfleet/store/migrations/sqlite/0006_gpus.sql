-- The GPUs that an attempt holds as long as it is live: JSON [{index, uuid}]. `gpus` is how many it asked for.
alter table attempt add column devices text not null default '[]';
