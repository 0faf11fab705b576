-- When an attempt was judged, by the store's clock: what its host says of its end may be by another clock.
alter table attempt add column judged_at real;
