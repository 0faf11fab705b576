"""Making a plan: what the store and the price list tell goes into `core.plan`, and the answer is stored before any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import anyio
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from evalfleet.answers.plans import Estimate, Plan, PlanBasis, PlanGroup, PlanOption, Reserved
from evalfleet.config import Settings
from evalfleet.core.plan.choice import Goal, Option, break_even_runs, choose, counts, fleets, options
from evalfleet.core.plan.durations import Durations, Job, Prior
from evalfleet.core.plan.fleet import Offer, StartPrior, Starts
from evalfleet.core.plan.simulation import Draws, Spread, Work
from evalfleet.errors import EvalfleetError, InputError
from evalfleet.layout import Home
from evalfleet.operations.machines.offers import Seller, seller
from evalfleet.operations.plans.history import History, history_of
from evalfleet.operations.plans.jobs import Planned
from evalfleet.pools.cloud.catalogue import SideCosts
from evalfleet.pools.cloud.records import DISK_GB, Offering
from evalfleet.pools.machine.reach import SYSTEM_MB
from evalfleet.report.plans import plan_answer
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

RESERVED_SHARE = 0.62  # what one year of a general-purpose size costs at list price, of the price on demand
COLLECTED_GB = 0.02  # per task: pictures and logs
_MB_PER_GB = 1024
_MOST_GB = 100_000
_KVM_VCPUS, _KVM_GB = 4, 16  # a Windows guest, and the machine around it
_KINDS = 3  # sizes of each market that a plan compares

_LIMITS = {
    "deadline_s": (1.0, 1e9),
    "budget_usd": (1e-6, 1e6),
    "workers": (1, 10_000),
    "minutes_per_task": (1e-6, 1e6),
    "start_minutes": (0.0, 1e6),
    "price": (0.0, 1e6),
}


class PlanRequest(Struct, frozen=True, kw_only=True):
    """What a person says of a plan. None: what is best."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    workers: int | None = None
    size: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: bool | None = None  # None: both are compared
    backend: str | None = None  # None: the cloud that is set up
    minutes_per_task: float | None = None  # None: from history, else as the prior has it
    start_minutes: float | None = None  # the same of machines
    memory: Mapping[str, int] = {}  # MB that each task of a domain needs, by domain
    image: bool = False  # a golden image is kept in each region
    price: float | None = None  # dollars per machine and hour, in place of the price list's
    seed: int = 0


def make(settings: Settings, store: Store, planned: Planned, asked: PlanRequest) -> Plan:
    """Plan a run, and store the plan.

    Raises InputError: there are no tasks, no size holds them, or the quota allows none. NotFound: an unknown size.
    """
    if not planned.jobs:
        raise InputError(f"{planned.source}: has no tasks to plan")
    _check(asked)
    cloud = seller(settings, asked.backend)
    speed = cloud.speed(settings) if cloud.is_configured(settings) else 1.0
    planned = replace(planned, jobs=tuple(_needing(job, asked) for job in planned.jobs))
    history = history_of(store, planned.jobs, planned.name, speed or 1.0)
    offers, asked_quota, egress_usd = _offers(settings, cloud, planned, asked)
    work = _work(planned, history, asked, egress_usd)
    prior = work.starts.prior
    numbers = counts(len(planned.jobs), asked.workers)
    needs = [job.memory_mb for job in planned.jobs]
    candidates = fleets(offers, numbers, needs, lambda offer: history.rates(offer, prior))
    if not candidates:
        raise InputError(_nothing(offers, asked))
    found = options(Draws(work, asked.seed), candidates, len(planned.jobs))
    chosen, keeps = choose(found, Goal(deadline_s=asked.deadline_s, budget_usd=asked.budget_usd))
    content = to_builtins(
        Plan(
            id="",
            created_at=0.0,
            source=planned.source,
            tasks=len(planned.jobs),
            backend=cloud.name,
            deadline_s=asked.deadline_s,
            budget_usd=asked.budget_usd,
            memory_mb=dict(asked.memory),
            keeps=keeps,
            chosen=found.index(chosen),
            options=[_option(one) for one in found],
            basis=_basis(planned, work, history, asked, offers, asked_quota),
            reserved=_reserved(chosen),
            seed=asked.seed,
            speed=history.speed,
            actual=None,
        )
    )
    return plan_answer(store, store.plans.add(content))


def _check(asked: PlanRequest) -> None:
    """Raises InputError for a number that no plan can be made of."""
    for name, (least, most) in _LIMITS.items():
        value = getattr(asked, name)
        if value is not None and not least <= value <= most:
            raise InputError(f"{name}: must be a number from {least:g} to {most:g}")


def show(store: StoreReader, plan_id: str | None) -> Plan:
    """One plan, or the newest. Raises NotFound."""
    if plan_id is None:
        newest = store.plans.newest(1)
        if not newest:
            raise InputError("there is no plan yet; `evalfleet plan` makes one")
        return plan_answer(store, newest[0])
    return plan_answer(store, store.plans.get(plan_id))


def newest(store: StoreReader, limit: int = 20) -> list[Plan]:
    """The newest plans first, each with what became of its run."""
    return [plan_answer(store, one) for one in store.plans.newest(limit)]


def in_mb(memory_gb: Mapping[str, float]) -> dict[str, int]:
    """What tasks of each domain need. Raises InputError."""
    if not all(0 < gb <= _MOST_GB for gb in memory_gb.values()):
        raise InputError(f"memory_gb: must be numbers up to {_MOST_GB}")
    return {domain: int(gb * _MB_PER_GB) for domain, gb in memory_gb.items()}


def _needing(job: Job, asked: PlanRequest) -> Job:
    need = asked.memory.get(job.domain, 0)
    return replace(job, memory_mb=need) if need > job.memory_mb else job


def _work(planned: Planned, history: History, asked: PlanRequest, egress_usd: float) -> Work:
    prior = Prior() if asked.minutes_per_task is None else Prior(seconds=asked.minutes_per_task * 60)
    samples = history.samples if asked.minutes_per_task is None else ()
    gb = COLLECTED_GB if history.collected_gb is None else history.collected_gb
    return Work(
        jobs=planned.jobs,
        durations=Durations(planned.jobs, samples, prior),
        starts=_starts(history, asked),
        odds=replace(history.odds, attempts=planned.attempts, egress_usd=gb * egress_usd),
    )


def _starts(history: History, asked: PlanRequest) -> Starts:
    if asked.start_minutes is None:
        return history.starts
    seconds, usual = asked.start_minutes * 60, StartPrior()
    share = usual.wait_s / (usual.wait_s + usual.prepare_s)
    return Starts(prior=replace(usual, wait_s=seconds * share, prepare_s=seconds * (1 - share)))


# What can be bought


def _offers(settings: Settings, cloud: Seller, planned: Planned, asked: PlanRequest) -> tuple[list[Offer], bool, float]:
    """The kinds of machines to compare, whether the quota was asked for, and the price of a GB that leaves a region."""
    regions = tuple(map(cloud.region, asked.regions)) or cloud.default_regions
    named = [cloud.size(name) for name in asked.size]
    fitting = [one for one in _priced(settings, cloud, regions, planned, asked) if _fits(one, named, asked)]
    kept = fitting if named else _best(fitting, planned)
    limits = _quotas(settings, cloud, kept)
    limited = kept if limits is None else [replace(one, most=limits.get(_kind(one))) for one in kept]
    return limited, limits is not None, cloud.egress_usd_per_gb if isinstance(cloud, SideCosts) else 0.0


def _priced(
    settings: Settings, cloud: Seller, regions: Sequence[str], planned: Planned, asked: PlanRequest
) -> list[Offer]:
    """All sizes that could run the tasks, in all regions, on demand and spot, as far as prices are known."""
    table, found = cloud.prices(Home(settings.home)), list[Offer]()
    named = {cloud.size(name) for name in asked.size}
    side = cloud if isinstance(cloud, SideCosts) else None
    for size in cloud.sizes():
        large = not planned.kvm or (size.nested and size.vcpus >= _KVM_VCPUS and size.memory_gb >= _KVM_GB)
        for region in regions if large or size.name in named else ():
            for spot in (False, True):
                known = table.find(Offering(size=size.name, region=region, spot=spot))
                usual = known or table.find(Offering(size=size.name, region=region))
                usd = asked.price if asked.price is not None or usual is None else usual.usd_per_hour
                if usd is None:
                    continue
                found.append(
                    Offer(
                        size=size.name,
                        region=region,
                        spot=spot,
                        vcpus=size.vcpus,
                        memory_mb=int(size.memory_gb * _MB_PER_GB) - SYSTEM_MB,
                        usd_per_hour=usd,
                        kept_usd_per_hour=side.kept_usd_per_hour(size.name, DISK_GB) if side else 0.0,
                        image_usd_per_hour=side.image_usd_per_hour(DISK_GB) if side and asked.image else 0.0,
                        at_most=known is None,
                    )
                )
    return found


def _fits(offer: Offer, named: Sequence[str], asked: PlanRequest) -> bool:
    if asked.spot is not None and offer.spot != asked.spot:
        return False
    if offer.spot and offer.at_most and asked.spot is None:
        return False  # what is not known to be cheaper is no option of its own
    return not named or offer.size in named


def _best(offers: Sequence[Offer], planned: Planned) -> list[Offer]:
    """The cheapest sizes of each market that hold all tasks, and the cheapest that hold only the smaller ones."""
    needs = sorted({job.memory_mb for job in planned.jobs})
    found: list[Offer] = []
    for spot in (False, True):
        market = sorted((one for one in offers if one.spot == spot), key=lambda one: one.total_usd_per_hour)
        memory = {one.size: one.memory_mb for one in market}  # the cheapest first
        kept = {size for need in needs[-2:] for size in [one for one in memory if memory[one] >= need][:_KINDS]}
        found += [one for one in market if one.size in kept]
    return found


def _kind(offer: Offer) -> tuple[str, str, bool]:
    return offer.size, offer.region, offer.spot


def _quotas(settings: Settings, cloud: Seller, offers: Sequence[Offer]) -> dict[tuple[str, str, bool], int] | None:
    """How many machines of each kind the account still allows; None: no account is set, or it does not answer."""
    if not offers or not cloud.is_configured(settings):
        return None

    async def ask() -> dict[tuple[str, str, bool], int]:
        found: dict[tuple[str, str, bool], int] = {}
        for size, spot in {(one.size, one.spot) for one in offers}:
            regions = [one.region for one in offers if (one.size, one.spot) == (size, spot)]
            for allowed in await cloud.allowances(settings, size, regions, spot=spot):
                found[size, allowed.region, spot] = allowed.fits
        return found

    try:
        with ThreadPoolExecutor(1) as thread:  # the caller's may have an event loop
            return thread.submit(anyio.run, ask).result()
    except EvalfleetError:
        return None  # a plan can do without; the quota is asked again before anything is bought


def _nothing(offers: Sequence[Offer], asked: PlanRequest) -> str:
    if not offers:
        return "no size with a known price holds these tasks; name one with --size, or `evalfleet prices --refresh`"
    allowed = max((offer.most for offer in offers if offer.most is not None), default=0)
    wanted = f"{asked.workers} workers" if asked.workers else "a worker"
    ask = f"`evalfleet quota --workers {asked.workers or 1}` says what to ask for"
    return f"the quota allows {allowed} machines of one size in one region, too few for {wanted}; {ask}"


# What is answered


def _option(one: Option) -> PlanOption:
    return PlanOption(
        workers=one.fleet.workers,
        groups=[
            PlanGroup(
                size=group.offer.size,
                region=group.offer.region,
                spot=group.offer.spot,
                machines=group.machines,
                usd_per_hour=group.offer.total_usd_per_hour,
            )
            for group in one.fleet.groups
        ],
        seconds=_estimate(one.forecast.seconds),
        usd=_estimate(one.forecast.usd),
        machine_hours=one.forecast.machine_hours,
    )


def _estimate(found: Spread) -> Estimate:
    return Estimate(mean=found.mean, low=found.low, high=found.high)


def _reserved(chosen: Option) -> Reserved | None:
    if any(group.offer.spot for group in chosen.fleet.groups):
        return None
    runs = break_even_runs(chosen.fleet.workers, chosen.forecast, RESERVED_SHARE)
    return Reserved(share=RESERVED_SHARE, runs_per_month=runs)


def _basis(
    planned: Planned,
    work: Work,
    history: History,
    asked: PlanRequest,
    offers: Sequence[Offer],
    asked_quota: bool,
) -> PlanBasis:
    said: list[str] = []
    prior, starts = Prior(), work.starts.prior
    if not work.durations.known:
        minutes = asked.minutes_per_task or prior.seconds / 60
        said.append(f"tasks of {minutes:g} minutes on average: no earlier run has a verdict of these keys")
    elif work.durations.known < len(planned.jobs):
        said.append("tasks without history take as long as others of their domain")
    if not work.starts.samples:
        said.append(f"machines that are ready after {(starts.wait_s + starts.prepare_s) / 60:g} minutes")
    if any(offer.spot for offer in offers) and not any(one.spot for one in history.machines):
        said.append(f"{starts.evictions_per_hour:.0%} of spot machines are taken away in an hour")
    if any(offer.at_most for offer in offers):
        said.append("spot prices at most those on demand; `evalfleet prices --refresh` reads them")
    said.append("every size is as fast as those that the tasks ran on")
    return PlanBasis(
        tasks=len(planned.jobs),
        known_tasks=work.durations.known,
        runs=len(history.runs),
        machines=len(history.starts.samples),
        quota_asked=asked_quota,
        assumptions=said,
    )
