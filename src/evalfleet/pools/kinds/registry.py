"""Kinds of pools by name: the built-in ones, and those of other packages by the entry point group `evalfleet.backends`.

Nothing is imported before it is asked for by its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from evalfleet import plugins
from evalfleet.errors import InputError
from evalfleet.model import Pool
from evalfleet.pools.kinds.base import HasMembers, PoolKind

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.pools.kinds.cloud import CloudKind
    from evalfleet.store.reader import StoreReader

GROUP = "evalfleet.backends"
BUILT_IN = {
    "ssh": "evalfleet.pools.kinds.ssh:KIND",
    "azure-vm": "evalfleet.azure.provider:KIND",
    "azure-batch": "evalfleet.azure.batch.provider:KIND",
    "azure-ml": "evalfleet.azure.ml.provider:KIND",
    "azure-ml-instance": "evalfleet.azure.ml.provider:INSTANCE_KIND",
    "tiers": "evalfleet.pools.kinds.tiers:KIND",
    "ray": "evalfleet.pools.kinds.ray:KIND",
    "slurm": "evalfleet.slurm.provider:KIND",
}


def names() -> list[str]:
    """The built-in kinds, then those of other packages."""
    return [*BUILT_IN, *sorted(plugins.installed(GROUP).keys() - BUILT_IN.keys())]


def find(name: str) -> PoolKind:
    """Raises InputError where there is none, or the package that brings it cannot be imported."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast("PoolKind", getattr(import_module(module), attribute))
    plugin = plugins.installed(GROUP).get(name)
    if plugin is None:
        from evalfleet.validation import suggestion

        raise InputError(f"there is no backend {name!r}{suggestion(name, names())}; known here: {', '.join(names())}")
    try:
        return cast("PoolKind", plugin.load())
    except Exception as error:
        raise InputError(
            f"backend {name!r}: {plugin.value} cannot be loaded: {type(error).__name__}: {error}."
        ) from error


def kind_of(pool: Pool) -> PoolKind:
    """Raises InputError for a backend that this evalfleet does not know."""
    try:
        return find(pool.backend)
    except InputError as error:
        raise InputError(f"pool {pool.name!r}: {error}") from error


def creates_machines(pool: Pool) -> bool:
    return kind_of(pool).creates_machines


def with_members(store: StoreReader, pool: Pool) -> list[Pool]:
    """The pools whose hosts a run on this pool uses: its members, where it consists of other pools, else itself."""
    kind = kind_of(pool)
    return [store.pools.get(name) for name in kind.members(pool)] if isinstance(kind, HasMembers) else [pool]


def cloud_of(pool: Pool) -> CloudKind:
    """The kind of a pool whose machines we create. Raises InputError for any other."""
    kind = kind_of(pool)
    if isinstance(kind, HasMembers):
        tiers = ", ".join(kind.members(pool))
        raise InputError(f"pool {pool.name!r} has no machines of its own; do it to one of its tiers: {tiers}")
    if not kind.creates_machines:
        raise InputError(
            f"pool {pool.name!r} consists of existing machines; only cloud machines can be changed like this"
        )
    return cast("CloudKind", kind)


def speed_of(pool: Pool, settings: Settings) -> float:
    """Seconds of its cloud per second of this machine's clock: 1, but for an emulator."""
    return cloud_of(pool).provider.speed(settings) if creates_machines(pool) else 1.0


def clouds(*, skip_broken: bool = False) -> list[CloudKind]:
    """All kinds that create machines.

    Args:
        skip_broken: leave out plug-ins that cannot be loaded; else they raise InputError.
    """
    found: list[PoolKind] = []
    for name in names():
        try:
            found.append(find(name))
        except InputError:
            if not skip_broken:
                raise
    return [cast("CloudKind", kind) for kind in found if kind.creates_machines]
