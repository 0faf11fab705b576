"""The former flat names of the store (`store.claim`), until all callers say `store.attempts.claim`."""

# pyright: basic
# ruff: noqa: ANN201
from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from evalfleet.store.reader import StoreReader


class FlatReader:
    @property
    def run(self):
        return cast("StoreReader", self).runs.get

    @property
    def find_run(self):
        return cast("StoreReader", self).runs.find

    @property
    def driver(self):
        return cast("StoreReader", self).runs.driver

    @property
    def run_counts(self):
        return cast("StoreReader", self).runs.counts

    @property
    def runs_page(self):
        return cast("StoreReader", self).runs.page

    @property
    def breaker(self):
        return cast("StoreReader", self).runs.breaker

    @property
    def task(self):
        return cast("StoreReader", self).tasks.get

    @property
    def task_at(self):
        return cast("StoreReader", self).tasks.at

    @property
    def counts(self):
        return cast("StoreReader", self).tasks.counts

    @property
    def candidates(self):
        return cast("StoreReader", self).tasks.candidates

    @property
    def next_due(self):
        return cast("StoreReader", self).tasks.next_due

    @property
    def tasks_page(self):
        return cast("StoreReader", self).tasks.page

    @property
    def result_rows(self):
        return cast("StoreReader", self).tasks.result_rows

    @property
    def task_sums(self):
        return cast("StoreReader", self).tasks.sums

    @property
    def state_sums(self):
        return cast("StoreReader", self).tasks.state_sums

    @property
    def episode_sums(self):
        return cast("StoreReader", self).tasks.episode_sums

    @property
    def episodes(self):
        return cast("StoreReader", self).tasks.episodes

    @property
    def payloads(self):
        return cast("StoreReader", self).tasks.payloads

    @property
    def durations(self):
        return cast("StoreReader", self).tasks.durations

    @property
    def held(self):
        return cast("StoreReader", self).tasks.held

    @property
    def unended(self):
        return cast("StoreReader", self).attempts.unended

    @property
    def judged(self):
        return cast("StoreReader", self).attempts.judged

    @property
    def hosts_of(self):
        return cast("StoreReader", self).attempts.hosts

    @property
    def attempt_rows(self):
        return cast("StoreReader", self).attempts.all_rows

    @property
    def live_attempts(self):
        return cast("StoreReader", self).attempts.live

    @property
    def lane_rows(self):
        return cast("StoreReader", self).attempts.lanes

    @property
    def attempt_sums(self):
        return cast("StoreReader", self).attempts.sums

    @property
    def worker_sums(self):
        return cast("StoreReader", self).attempts.worker_sums

    @property
    def time_sums(self):
        return cast("StoreReader", self).attempts.time_sums

    @property
    def failure_sums(self):
        return cast("StoreReader", self).attempts.failure_sums

    @property
    def failure_lines(self):
        return cast("StoreReader", self).attempts.failure_lines

    @property
    def last_failures(self):
        return cast("StoreReader", self).attempts.last_failures

    @property
    def failed_page(self):
        return cast("StoreReader", self).attempts.failed_page

    @property
    def cost_usd(self):
        return cast("StoreReader", self).costs.total_usd

    @property
    def attempt_costs(self):
        return cast("StoreReader", self).costs.of_attempts

    @property
    def stated_costs(self):
        return cast("StoreReader", self).costs.stated

    @property
    def waste_usd(self):
        return cast("StoreReader", self).costs.waste_usd

    @property
    def waste_sums(self):
        return cast("StoreReader", self).costs.waste_sums

    @property
    def idle_usd(self):
        return cast("StoreReader", self).costs.idle_usd

    @property
    def events_before(self):
        return cast("StoreReader", self).events.before

    @property
    def all_events(self):
        return cast("StoreReader", self).events.all

    @property
    def last_number(self):
        return cast("StoreReader", self).events.last_number

    @property
    def last_event(self):
        return cast("StoreReader", self).events.last

    @property
    def alert_events(self):
        return cast("StoreReader", self).events.alerts

    @property
    def reap_events(self):
        return cast("StoreReader", self).events.reaps

    @property
    def quarantine_events(self):
        return cast("StoreReader", self).events.quarantines

    @property
    def worker_events(self):
        return cast("StoreReader", self).events.workers

    @property
    def answer(self):
        return cast("StoreReader", self).requests.answer

    @property
    def pool(self):
        return cast("StoreReader", self).pools.get

    @property
    def pool_owner(self):
        return cast("StoreReader", self).pools.owner

    @property
    def pool_tallies(self):
        return cast("StoreReader", self).pools.tallies

    @property
    def pool_demand(self):
        return cast("StoreReader", self).pools.demand

    @property
    def host_loads(self):
        return cast("StoreReader", self).hosts.live_counts

    @property
    def host_work(self):
        return cast("StoreReader", self).hosts.work

    @property
    def last_uses(self):
        return cast("StoreReader", self).hosts.last_uses

    @property
    def gpu_leases(self):
        return cast("StoreReader", self).gpus.leases

    @property
    def gpu_tickets(self):
        return cast("StoreReader", self).gpus.tickets

    @property
    def gpu_turn(self):
        return cast("StoreReader", self).gpus.turn

    @property
    def is_gpu_turn(self):
        return cast("StoreReader", self).gpus.is_turn

    @property
    def recent_loads(self):
        return cast("StoreReader", self).loads.recent

    @property
    def children(self):
        return cast("StoreReader", self).daemon.children

    @property
    def identity(self):
        return cast("StoreReader", self).home.identity
