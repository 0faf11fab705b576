"""What the rest of evalfleet may ask of a store about pools and their machines. Under the contract of `store.base`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from evalfleet.model import DesiredState, HostState, HostWork, JsonObject, Pool, PoolHost, RunDemand


class PoolReader(Protocol):
    """Reading."""

    def pool(self, name: str) -> Pool:
        """Raises NotFound."""
        ...

    def pools(self) -> list[Pool]:
        """By name."""
        ...

    def pool_owner(self, name: str) -> str | None:
        """Who makes the pool's hosts what they should be at this moment; None if nobody does."""
        ...

    def hosts(self, pool: str, *, gone: bool = False) -> list[PoolHost]:
        """The machines that were made for a pool, in their order; with `gone` also those that are no more."""
        ...

    def pool_tallies(self, pool: Pool) -> dict[str, Any]:
        """Of the runs that use the pool: total, completed, failed (tasks), and `hosts`, by name: assigned, completed
        (attempts), current (key of a task that runs there), busy_s (of all its attempts together)."""
        ...

    def host_loads(self) -> dict[str, int]:
        """How many attempts are live on each host, of whichever run; hosts without one are left out."""
        ...

    def host_work(self) -> dict[str, list[HostWork]]:
        """What would be lost with each host, of whichever run: attempts that are live, or have ended there and are not
        collected yet. Hosts without any are left out."""
        ...

    def pool_demand(self, pool: str) -> list[RunDemand]:
        """What each run that goes on could use of the pool."""
        ...


class PoolWriter(Protocol):
    """Writing."""

    def create_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        """Raises WrongState where there is one of that name."""
        ...

    def replace_pool(self, name: str, backend: str, settings: JsonObject) -> Pool:
        """Give a pool other hosts. Who drives a run notices at the next `resume`. Raises NotFound."""
        ...

    def delete_pool(self, name: str) -> None:
        """Raises NotFound, and WrongState while a run that is not over uses it."""
        ...

    def take_pool(self, name: str, owner: str) -> Pool:
        """Become the owner; raises the epoch. Raises Owned while another owner lives, NotFound."""
        ...

    def leave_pool(self, pool: Pool) -> None:
        """Give the pool up, if it is ours."""
        ...

    def amend_pool(self, name: str, settings: JsonObject) -> Pool:
        """Change what the pool should be; its owner follows. Event `pool.amended`. Raises NotFound."""
        ...

    def explain_pool(self, name: str, reason: JsonObject | None) -> None:
        """Say why it makes no more hosts, or that it does again. Event `pool.paused` or `pool.resumed`."""
        ...

    def mark_pool_for_deletion(self, name: str, *, force: bool = False) -> Pool:
        """Mark all its hosts for deletion, and the pool with the last of them; `force` as in `set_desired`. Event
        `pool.doomed`. Raises NotFound, and
        WrongState while a run that is not over uses it."""
        ...

    def request_hosts(self, pool: str, names: str, facts: Sequence[JsonObject]) -> list[PoolHost]:
        """Write down that so many machines are wanted, named `names` + number: the intent, before anybody is asked for
        them. Numbers are not used again in a pool, nor names in a home. Event `worker.requested`. Raises NotFound."""
        ...

    def set_desired(
        self, pool: str, names: Sequence[str], desired: DesiredState, reason: str, *, force: bool = False
    ) -> list[PoolHost]:
        """Say what hosts should be; the pool's owner follows. Returns those for which it is new: one that is to go
        stays so. From now on nothing is claimed on a host that is not to run. Event `worker.wished`. Raises NotFound.

        Args:
            force: although work is on it. Else it keeps what it has, and the new state waits until that has ended.
        """
        ...

    def move_host(self, pool: Pool, before: HostState, host: PoolHost) -> PoolHost | None:
        """Store how far a host is, if it is still as `before`, and the pool still ours; all but its desired state. Event
        where the state is another. None: not ours any more."""
        ...
