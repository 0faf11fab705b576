"""Becoming the controller of a run: take it, begin it, drive it, leave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from evalfleet import config
from evalfleet.config.secrets import Secrets
from evalfleet.config.shares import share_rules
from evalfleet.core.breaker import Limits
from evalfleet.core.failures.judge import BUILTIN, Pattern
from evalfleet.core.hosts.health import Patience
from evalfleet.engine.hosts.fleet import fleet_of, require_here
from evalfleet.engine.hosts.host_events import HostEvents
from evalfleet.engine.orders import Mode
from evalfleet.engine.requests import amended
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Spectator, Supervisor, owner_name
from evalfleet.errors import RunOver
from evalfleet.layout import Home
from evalfleet.model import Kind, Run, RunState
from evalfleet.store.store import Store


def engine_settings(settings: config.Settings) -> EngineSettings:
    return EngineSettings(
        lease_s=settings.lease.duration_s,
        patience=Patience(give_up_s=settings.lease.give_up_s),
        breaker=Limits(slow_start=settings.breaker.slow_start, probe_base_s=settings.breaker.probe_base_s),
        share_rules=share_rules(settings.share, settings.quota),
        home=settings.home,
        keep_free=None if settings.disk.keep_free_gb is None else int(settings.disk.keep_free_gb * 1e9),
        patterns=(
            *(Pattern.of(row.regex, Kind(row.kind)) for row in settings.judge.patterns),
            *((BUILTIN,) if settings.judge.builtin else ()),
        ),
    )


def take(
    store: Store, run: Run, *, workers: int | None = None, budget_usd: float | None = None, stays_paused: bool = False
) -> Run:
    """Own the run and set it to running, with the requested changes.

    Args:
        stays_paused: keep a pause that an operator requested before the last controller died. Otherwise
            that pause is lifted.

    Raises Owned while another controller drives it, RunOver if nothing is left to drive, WrongFolder (see `require_here`).
    """
    require_here(store, run)
    taken = store.runs.take(run.id, owner_name())  # its state can change until now
    if taken.state.is_over:
        if store.attempts.unended(run.id):
            return taken  # a controller died while it collected the last files
        store.runs.leave(taken)
        raise RunOver(
            f"run {run.id} is {taken.state}; `evalfleet report {run.id}` shows it, `evalfleet retry {run.id} --only "
            f"{'cancelled' if taken.state is RunState.CANCELLED else 'failed'}` tries tasks again"
        )
    if taken.pausing is not None and not stays_paused and store.runs.set_pausing(taken, None):
        taken = replace(taken, pausing=None)
    return reopen(store, taken, workers=workers, budget_usd=budget_usd)


def reopen(store: Store, taken: Run, *, workers: int | None = None, budget_usd: float | None = None) -> Run:
    """Set a run that we own to running, with the requested changes, whatever its state."""
    if workers is not None or budget_usd is not None:
        changed = amended(taken, workers=workers, budget_usd=budget_usd)
        taken = store.runs.amend(taken, changed.policy) or taken
    return store.runs.begin(taken) or taken


async def drive(
    settings: config.Settings,
    store: Store,
    run: Run,
    *,
    spectators: Sequence[Spectator] = (),
    notice: Callable[[str], None] = lambda _: None,
    signals: bool = False,
    mode: Mode = Mode.DRIVE,
) -> Ending:
    """Drive a run that we own until it settles or we are interrupted, then leave it.

    Raises NotFound and ConfigError if its pool cannot be used.
    """
    host_events = HostEvents(notice)
    fleet = fleet_of(settings, store, run, host_events)
    supervisor = Supervisor(
        store=store,
        home=Home(settings.home),
        fleet=fleet,
        run=run,
        settings=engine_settings(settings),
        secrets=partial(Secrets(settings.secrets).values, user=run.owner, project=run.project),
        spectators=spectators,
        notice=notice,
        host_events=host_events,
    )
    try:
        ending = await supervisor.drive(signals=signals, mode=mode)
    finally:
        store.runs.leave(run)
    if ending is Ending.SETTLED:
        await fleet.part(over=store.runs.get(run.id).state.is_over)
    return ending


async def cancel(settings: config.Settings, store: Store, run: Run) -> None:
    """End what a run that we own still has running, cancel it, and leave it."""
    if store.attempts.unended(run.id):
        await drive(settings, store, store.runs.begin(run) or run, mode=Mode.CANCEL)
    else:
        store.tasks.cancel(run, "the run was cancelled")
        store.runs.cancel(run)
        store.runs.leave(run)
