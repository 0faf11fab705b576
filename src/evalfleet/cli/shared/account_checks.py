"""Looks at the account of a cloud before anything is bought there: `evalfleet doctor --azure`, and `pool create`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evalfleet.answers.home import Check
    from evalfleet.config import Settings
    from evalfleet.model import JsonObject
    from evalfleet.pools.cloud.records import Diagnosis
    from evalfleet.pools.kinds.base import PoolKind

BACKEND = "azure-vm"
# What makes a purchase pointless; the rest may turn out well in another region, or later.
_FATAL = ("sign-in", "subscription", "permissions", "policies")


def examine_account(
    settings: Settings, size: str | None, regions: str | None, workers: int, *, spot: bool, register: bool
) -> list[Check]:
    """The checks of `doctor --azure`."""
    import anyio

    from evalfleet.answers.home import Check, Level
    from evalfleet.errors import ConfigError, InputError, NotFound
    from evalfleet.pools.cloud.protocol import Diagnoses
    from evalfleet.pools.cloud.purchases import candidates
    from evalfleet.pools.cloud.waits import told_to
    from evalfleet.pools.kinds.registry import clouds

    provider = next(kind.provider for kind in clouds(skip_broken=True) if kind.name == BACKEND)
    assert isinstance(provider, Diagnoses)
    diagnoses: Sequence[Diagnosis] = ()

    async def look() -> None:
        nonlocal diagnoses
        names = [part.strip() for part in regions.split(",")] if regions else provider.default_regions
        chosen = provider.size(size or provider.default_size)
        offerings = candidates([chosen], map(provider.region, names), spot=spot)
        with told_to(lambda line: click.echo(f"evalfleet: {line}", err=True)):
            diagnoses = await provider.diagnose(settings, offerings, workers, register=register)

    try:
        anyio.run(look)
    except (ConfigError, InputError, NotFound) as error:
        remedy = "see docs/reference/azure.md"
        return [Check(name="settings", level=Level.PROBLEM, message=str(error), remedy=remedy)]
    return [
        Check(name=each.name, level=Level(str(each.level)), message=each.message, remedy=each.remedy)
        for each in diagnoses
    ]


def may_buy(settings: Settings, kind: PoolKind, kept: JsonObject) -> bool:
    """Whether the first machines of a pool are worth asking for; says what stands in the way, and what may.

    Args:
        kept: what the store keeps, or will keep, of the pool.
    """
    import anyio
    import msgspec

    from evalfleet.pools.cloud.protocol import Diagnoses
    from evalfleet.pools.cloud.purchases import candidates
    from evalfleet.pools.cloud.records import Level
    from evalfleet.pools.settings import PoolSettings, in_present_words

    provider = getattr(kind, "provider", None)
    wanted = msgspec.convert(in_present_words(kept), PoolSettings, strict=False)
    if not isinstance(provider, Diagnoses):
        return True
    offerings = candidates(wanted.size, wanted.regions, spot=wanted.spot)
    machines = max(1, wanted.least) if wanted.scales else wanted.workers
    found = anyio.run(provider.diagnose, settings, offerings, machines)
    for each in found:
        if each.level is not Level.OK:
            click.echo(f"evalfleet: {each.level}: {each.name}: {each.message}; {each.remedy}", err=True)
    return not any(each.level is Level.PROBLEM and each.name in _FATAL for each in found)
