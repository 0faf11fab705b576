"""What a kind of pool must know: the object behind the word that `--backend` takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from evalfleet.config import Settings
from evalfleet.core.readiness import Notice
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.base import Fleet
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool, PoolHost, Run
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store


class HostRow(Protocol):
    """What is known of a host without asking it."""

    @property
    def name(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def price_usd_per_hour(self) -> float: ...


class PoolKind(Protocol):
    """One for each backend, found by name; see `registry`."""

    @property
    def name(self) -> str:
        """The word for `--backend`, and what the store remembers."""
        ...

    @property
    def title(self) -> str:
        """For people, in a few words."""
        ...

    @property
    def creates_machines(self) -> bool:
        """Whether its machines are created, started, stopped and deleted by pool commands, and cost money meanwhile. If so,
        the kind is a `CloudKind`."""
        ...

    @property
    def options(self) -> tuple[str, ...]:
        """The words of `config.pools.PoolOptions` that it takes."""
        ...

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        """What the store keeps of a new pool, checked.

        Args:
            options: those that were given, by their words; never None.

        Raises InputError.
        """
        ...

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[HostRow]:
        """What it has. `rows`: the machines that the store keeps for the pool."""
        ...

    def slots(self, pool: Pool) -> int:
        """How many workers it has, or may have."""
        ...

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[ReachableHost | UnavailableHost]:
        """Its hosts as commands such as `pool ssh` reach them; empty where hosts are not reached over SSH."""
        ...

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> Fleet:
        """The hosts as a run uses them.

        Args:
            process: the name of this process, as owner of a pool.
            notice: hears lines for people, and events.

        Raises InputError.
        """
        ...


@runtime_checkable
class NeedsFiles(Protocol):
    """What a kind may have besides: its hosts are reached with files of this machine."""

    def needed_files(self, pool: Pool) -> Sequence[Path]: ...


@runtime_checkable
class HasMembers(Protocol):
    """What a kind may have besides: its pools consist of other pools, and have no hosts of their own."""

    def members(self, pool: Pool) -> tuple[str, ...]:
        """The names of those pools, the most preferred first."""
        ...

    def join(self, store: Store, pool: Pool) -> None:
        """Store that the pool, which was just written, consists of these. Raises InputError where one cannot be a member."""
        ...


@runtime_checkable
class KeepsFolders(Protocol):
    """What a kind may have besides: its hosts keep a folder of evalfleet, which goes with the pool."""

    async def leave(self, pool: Pool, others: Sequence[Pool], home: Home) -> dict[str, str]:
        """Remove our folders from the hosts of a pool that is deleted, where they are reached and idle.

        Args:
            others: the pools of the same kind that remain: what they use stays.

        Returns the hosts where a folder stays that should have gone, and why.
        """
        ...


@runtime_checkable
class AsksHosts(Protocol):
    """What a kind may have besides: its hosts are asked in a way of its own by `pool status --probe`, not over SSH."""

    async def probe(self, pool: Pool, home: Home, limit_s: float) -> dict[str, JsonObject]:
        """The answer of each host that is there now, by name: whether it is `reachable`, and its resources (`host`) or the
        `error`."""
        ...


@runtime_checkable
class KeepsRunners(Protocol):
    """What a kind may have besides: its hosts keep a runner that waits for work, which `evalfleet reap` ends."""

    async def end_idle_runners(
        self, pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]
    ) -> list[str]:
        """End the runners that have no work. Returns the names of their hosts.

        Args:
            busy: hosts with attempts of this home, which are left alone.
            say: hears of hosts that do not answer.
        """
        ...
