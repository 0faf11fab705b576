-- What an hour of an attempt's worker costs, as its host said when the attempt was claimed: whoever ends it later, perhaps without
-- ever reaching that host, books by it.
alter table attempt add column price_usd_per_hour real not null default 0;
