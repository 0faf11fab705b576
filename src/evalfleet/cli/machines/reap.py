"""`evalfleet reap`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from evalfleet.answers.machines import Reaped, ReapedResource
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import force_option, home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.model import Pool
    from evalfleet.pools.cloud.reaper import Finding
    from evalfleet.pools.cloud.records import KeptImage
    from evalfleet.pools.kinds.cloud import CloudKind
    from evalfleet.store.store import Store

_HOME = "home"  # stands for the run in events that belong to none
_NAMED = 20


@click.command("reap")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="LABEL",
    help="Also delete what the home with this label made; what that home still uses only with --force.",
)
@force_option
@json_option
@home_option
def command(dry_run: bool, owners: tuple[str, ...], force: bool, as_json: bool, home: str | None) -> int:
    """Delete evalfleet's resources that are no longer needed, in the cloud and on hosts, and verify that none is left.

    In the cloud: pools marked for deletion, and resources with evalfleet's tags that belong to no pool or wanted machine of this
    home. Resources of other homes go only after their deadline tag, or with --owner. A machine with
    uncollected results stays and is listed. On hosts: runners without work. Golden images stay (`evalfleet pool images`); what was
    left of images that failed goes. Exit codes: 0 nothing is left; 3 something is left.
    """
    from evalfleet import config
    from evalfleet.pools.kinds.registry import clouds, creates_machines
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        kinds = [kind for kind in clouds() if kind.provider.is_configured(settings)]
        if not kinds:
            click.echo("no cloud is set up here; only hosts are looked at", err=True)
            gone: list[ReapedResource] = []
            others: dict[str, int] = {}
            left = sum(creates_machines(pool) for pool in store.pools.all())  # nobody has seen what they have
        else:
            gone, left, others = _in_clouds(settings, store, kinds, owners, dry_run=dry_run, force=force)
        runners = [] if dry_run else _on_hosts(settings, store)
        if gone:
            names = sorted(row.name for row in gone)
            data = {"found": len(gone), "left": left, "names": names[:_NAMED], "by": "evalfleet reap"}
            store.events.note(_HOME, "reap.found", data)
    if as_json:
        print_document(Reaped(dry_run=dry_run, resources=gone, left=left, runners=runners, others=others))
    else:
        _print_others(others)
        _print(gone, left, runners, dry_run=dry_run)
    return 3 if left and not dry_run else 0


def _print(gone: list[ReapedResource], left: int, runners: list[str], *, dry_run: bool) -> None:
    from evalfleet.report.text import count

    for row in gone:
        click.echo(f"{'would go' if dry_run else 'gone'}: {row.type} {row.name} ({row.region}): {row.why}")
    for name in runners:
        click.echo(f"gone: the idle runner on {name}")
    if dry_run:
        click.echo(f"{count(len(gone), 'resource')} would go" if gone else "there is nothing to delete")
    elif left:
        click.echo(f"{count(left, 'resource')} could not be deleted; run it again, or check the cloud's portal")
    else:
        click.echo("nothing is left to delete")


def _print_others(others: dict[str, int]) -> None:
    from evalfleet.report.text import count

    for owner, many in others.items():
        click.echo(f"left alone: {count(many, 'resource')} of another home; if that is gone for good: --owner {owner}")


def _in_clouds(
    settings: Settings,
    store: Store,
    kinds: list[CloudKind],
    owners: tuple[str, ...],
    *,
    dry_run: bool,
    force: bool,
) -> tuple[list[ReapedResource], int, dict[str, int]]:
    """What is or would be deleted, how many could not be, and how many resources of other homes were left alone."""
    import anyio

    from evalfleet.layout import Home
    from evalfleet.operations.pools import Order, reconcile
    from evalfleet.pools.busy import waiting
    from evalfleet.pools.cloud import reaper

    elsewhere = _elsewhere(settings, store)
    images: list[KeptImage] = []

    async def act() -> tuple[list[Finding], int, dict[str, int]]:
        kept = len(elsewhere)
        if not dry_run:
            for name in _over(store):
                store.pools.mark_for_deletion(name, force=force)
            for pool in store.pools.all():
                if pool.deleting and pool.name not in elsewhere:
                    waits = waiting(store, pool.name)
                    kept += len(waits)
                    for host, why in waits.items():
                        click.echo(f"evalfleet: {host} of pool {pool.name} stays: it {why}", err=True)
                    await reconcile(settings, store, Order(pool=pool.name, creates=False), waits=False)
        found: list[Finding] = []
        others: dict[str, int] = {}
        for kind in kinds:
            async with kind.provider.open(settings, Home(settings.home)) as cloud:
                purposes = reaper.purposes_of(store, named=owners, force=force)
                images.extend(await reaper.reap_images(cloud, {*purposes.owners, *owners}, dry_run=dry_run))
                owned = await cloud.resources()
                now = store.now() + reaper.skew_s(cloud)
                going = still = reaper.findings(owned, purposes, now)
                if not dry_run:
                    await reaper.reap(cloud, going)
                    owned = await cloud.resources()
                    still = reaper.findings(owned, purposes, now)
                left = {each.resource.id for each in still}
                others |= reaper.others((one for one in owned if one.id not in left), purposes)
                found += going
                kept += len(still)
        return found, kept, others

    found, left, others = anyio.run(act)
    rows = [
        ReapedResource(type=each.resource.type, name=each.resource.name, region=each.resource.region, why=each.why)
        for each in found
    ]
    rows += [
        ReapedResource(
            type=each.kind, name=f"{each.name} {each.version}", region=", ".join(each.regions), why="left over"
        )
        for each in images
    ]
    return rows, left, others


def _elsewhere(settings: Settings, store: Store) -> list[str]:
    """Pools in another account than the one of this shell; each is reported."""
    from evalfleet.errors import InputError
    from evalfleet.pools.kinds.registry import cloud_of, creates_machines

    found: list[str] = []
    for pool in store.pools.all():
        try:
            if creates_machines(pool):
                cloud_of(pool).require_account(pool, settings)
        except InputError as error:
            found.append(pool.name)
            click.echo(f"evalfleet: not looked at: {error}", err=True)
    return found


def _over(store: Store) -> list[str]:
    """Pools that were made for a run that is over."""
    from evalfleet.errors import NotFound

    found: list[str] = []
    for pool in store.pools.all():
        run_id = pool.settings.get("run")
        if run_id is None or pool.deleting:
            continue
        try:
            is_over = store.runs.get(run_id).state.is_over
        except NotFound:
            is_over = True
        if is_over:
            found.append(pool.name)
    return found


def _on_hosts(settings: Settings, store: Store) -> list[str]:
    """Names of hosts whose runner had no work and was ended."""
    import anyio

    from evalfleet.layout import Home
    from evalfleet.pools.kinds.base import KeepsRunners
    from evalfleet.pools.kinds.registry import kind_of

    busy = {host for host, count in store.hosts.live_counts().items() if count}
    ended: list[str] = []

    async def retire(kind: KeepsRunners, pool: Pool) -> None:
        ended.extend(await kind.end_idle_runners(pool, busy, Home(settings.home), _warn))

    async def act() -> None:
        async with anyio.create_task_group() as group:
            for pool in store.pools.all():
                if isinstance(kind := kind_of(pool), KeepsRunners):
                    group.start_soon(retire, kind, pool)

    anyio.run(act)
    return sorted(ended)


def _warn(text: str) -> None:
    click.echo(f"evalfleet: {text}", err=True)
