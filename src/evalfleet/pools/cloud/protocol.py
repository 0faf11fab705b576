"""What a pool asks of a cloud. `testing.cloud_contract` tries every promise; `docs/howto/write-a-backend.md` shows one.

Every call takes our own names and may be made again after a crash: creating what is there, starting what runs, deleting
what is gone all change nothing. None waits for a long operation: it returns a continuation, a text that is stored with the
machine, and `poll` looks once how far the operation is, in this process or in the next.

All async methods raise `Refusal`, which carries the judged problem, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from evalfleet.config import Settings
from evalfleet.core.hosts.load import Sample
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import (
    Creation,
    Diagnosis,
    Endpoint,
    Image,
    ImageRequest,
    KeptImage,
    MachineSpec,
    MachineView,
    Offering,
    Price,
    Progress,
    Quota,
    Resource,
    Verb,
)

if TYPE_CHECKING:
    from evalfleet.hosts.mailbox.boxes import Boxes, BoxStorage


class Cloud(Protocol):
    """An open connection to one account of one cloud."""

    @property
    def poll_s(self) -> float:
        """Seconds between two looks at a long operation."""
        ...

    # Machines

    async def list(self, pool: str | None = None) -> Sequence[MachineView]:
        """All machines with our labels, or those of one pool. Never a part of them: what is not listed is gone."""
        ...

    async def view(self, name: str) -> MachineView | None:
        """How one machine is. None: the cloud says that there is none."""
        ...

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        """Create a machine that the cloud itself stops at `stops_at`, even without a controller.

        A machine of that name is left as it is: it may be that of another home. A machine whose deadline the cloud did not
        take is created all the same, and the answer says so.
        """
        ...

    async def start(self, name: str) -> str: ...

    async def stop(self, name: str) -> str:
        """Stop paying for the machine's time. Its disk stays."""
        ...

    async def delete(self, name: str) -> str | None:
        """Delete the machine and all its parts. None: it is gone already. Only `view` is evidence that it is gone. Its
        deadline stays until then: a deletion that was accepted may fail."""
        ...

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        """Look once how far an operation is. `offering` lets the message of a failed creation say what was asked for."""
        ...

    async def endpoint(self, name: str) -> Endpoint | None:
        """Where the machine answers SSH. None: it has no address (yet)."""
        ...

    async def log(self, name: str) -> str:
        """What the machine wrote to its console, the end of it; empty where the cloud keeps none. It is the log named `boot`."""
        ...

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        """Have the cloud stop the machine at that moment, and see that the cloud knows it. Said again, it moves."""
        ...

    async def has_deadline(self, name: str, at: float) -> bool:
        """Whether the cloud will stop the machine at that moment, as it says itself."""
        ...

    async def drop_deadline(self, name: str) -> None:
        """Delete the deadline of a machine that is gone."""
        ...

    async def extend(self, view: MachineView, expires_at: float) -> None:
        """Move the time after which any home may reap the machine (`LABEL_EXPIRES`)."""
        ...

    # What is around machines

    async def resources(self, pool: str | None = None) -> Sequence[Resource]:
        """Everything of any type with our labels: what a reaper must account for."""
        ...

    async def delete_resource(self, resource: Resource) -> None:
        """Delete anything but a machine, and wait for it; one that is gone already is not an error."""
        ...

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        """Create what the machines of a pool share in a region, such as a network; before `create`. May be interrupted."""
        ...

    async def clean_region(self, pool: str, region: str) -> None:
        """Delete what the machines of a pool shared in a region, once none is there any more."""
        ...

    async def image(self, name: str) -> str | None:
        """The id of the newest image of that name. None: there is none."""
        ...

    # Money

    def price(self, offering: Offering, disk_gb: int) -> Price: ...

    async def quota(self, offering: Offering) -> Quota | None:
        """The counter that binds machines of this kind most, with what is used of it. None: nothing is counted."""
        ...


@runtime_checkable
class KeepsLogs(Protocol):
    """What a cloud has besides, if it keeps more logs of a machine than that of its console, which is `Cloud.log`."""

    async def logs(self, name: str) -> Sequence[str]:
        """Names of the logs that there are of the machine now, the most telling first; empty where there are none. Also asked of a
        machine that failed. A name has small letters, digits and `-._/`: `start-task`."""
        ...

    async def read_log(self, name: str, log: str, limit: int) -> str:
        """The last `limit` characters of it; empty where it is gone, or never was."""
        ...


@runtime_checkable
class MeasuresMachines(Protocol):
    """What a cloud has besides, if it measures how busy its machines are, without a login."""

    async def loads(
        self, machines: Sequence[MachineView], since: float, until: float
    ) -> Mapping[str, Sequence[Sample]]:
        """What was measured of each by name, oldest first, marked `from_cloud`. Few requests, however many machines."""
        ...


@runtime_checkable
class MakesImages(Protocol):
    """What a cloud has besides, if golden images can be made of its machines."""

    async def bake(
        self, request: ImageRequest, sync: Callable[[], Awaitable[None]], tell: Callable[[str], None]
    ) -> Image:
        """Copy the machine's disk into a new version of the image, or go on with one that is under way.

        Args:
            sync: lets the machine write what it still has in memory; called before the disk is copied.
            tell: hears one line for people.

        Raises WrongState where there is no such machine, and Refusal.
        """
        ...


@runtime_checkable
class LearnsOfferings(Protocol):
    """What a cloud has besides, if it can look up what is not known of an offering."""

    async def learn(self, offering: Offering) -> None:
        """Find out what such machines have and cost; before `price` and `create`. Asked again, it does nothing."""
        ...


@runtime_checkable
class NotifiesOfBudgets(Protocol):
    """What a cloud has besides, if it can itself tell people what a pool has cost."""

    async def set_budget(self, pool: str, usd: float | None) -> None:
        """Have the cloud notify people of this budget; None: not any more. It only notifies. Nothing happens where the settings
        name no address to notify."""
        ...


@runtime_checkable
class HasClock(Protocol):
    """What a cloud has besides, if it tells the time."""

    @property
    def skew_s(self) -> float:
        """How far this machine's clock is behind the cloud's, as its last answer said; 0 where they agree."""
        ...


@runtime_checkable
class KeepsImages(Protocol):
    """What a cloud has besides, if its images can be listed and deleted."""

    async def images(self) -> Sequence[KeptImage]:
        """All images that we made in this account, and what was left of making them."""
        ...

    async def delete_image(self, name: str, version: str | None = None) -> None:
        """Delete one version, or all of them. Machines that were created from it do not need it."""
        ...

    async def delete_leftover(self, image: KeptImage) -> None:
        """Delete what is not needed any more. One that is gone already is not an error."""
        ...


@runtime_checkable
class Diagnoses(Protocol):
    """What a provider may have besides."""

    async def diagnose(
        self, settings: Settings, offerings: Sequence[Offering], workers: int, *, register: bool = False
    ) -> Sequence[Diagnosis]:
        """Look whether such machines could be bought: account, permissions, quotas, network. Takes seconds, buys nothing.

        Args:
            register: also make the account ready where that needs no decision, such as registering for a service.

        Raises ConfigError, InputError.
        """
        ...


@runtime_checkable
class ExplainsReach(Protocol):
    """What a provider may have besides."""

    def reach_help(self, settings: Settings) -> str:
        """What a person should look at if no machine answers, in one line."""
        ...


@runtime_checkable
class ReachedByMailbox(Protocol):
    """What a provider has besides, if its machines cannot be called: each is a pilot that reads a box of its own. `create` starts
    the pilot of the spec (`MachineSpec.pilot`), and `endpoint` is not asked."""

    @property
    def keeps_stopped(self) -> bool:
        """Whether such a machine can be stopped and started again. If not, it is deleted where another would be stopped."""
        ...

    def boxes(self, settings: Settings, home: Home, pool: str) -> AbstractAsyncContextManager[Boxes]:
        """The boxes of the pool's machines, inside the block. Raises InputError."""
        ...


def keeps_stopped(provider: CloudProvider) -> bool:
    """Whether its machines can be stopped and started again. If not, they are deleted where others would be stopped."""
    return not isinstance(provider, ReachedByMailbox) or provider.keeps_stopped


@runtime_checkable
class ListsBoxes(Protocol):
    """What a provider of such machines has besides, if boxes can be found that no home remembers."""

    def box_storage(self, settings: Settings) -> AbstractAsyncContextManager[BoxStorage | None]:
        """The boxes of all homes and pools inside the block; None where the settings name no place for them."""
        ...


@runtime_checkable
class RunsJobs(Protocol):
    """What a provider has besides, if its machines are jobs: a job's deadline is fixed when it is submitted, and is not moved."""

    @property
    def start_timeout_s(self) -> float:
        """How long a job that runs may take until its pilot says hello."""
        ...


@runtime_checkable
class QueuesRequests(Protocol):
    """What a provider has besides, if requests for machines wait in a queue of its cloud and cost nothing there: then all that are
    wanted are asked for at once, however long the first one waits."""

    @property
    def queues_requests(self) -> bool: ...


class CloudProvider(Protocol):
    """A cloud that pools can be made in. Cheap to import: its libraries are loaded by `open`."""

    @property
    def name(self) -> str:
        """The word for `--backend`."""
        ...

    @property
    def title(self) -> str:
        """For people: `VMs on Azure`."""
        ...

    @property
    def login_user(self) -> str:
        """The user that may log in to its machines."""
        ...

    @property
    def default_size(self) -> str: ...

    @property
    def default_regions(self) -> tuple[str, ...]: ...

    @property
    def account_help(self) -> str:
        """How a person chooses another account: `Set X and Y to those of the pool`."""
        ...

    def is_configured(self, settings: Settings) -> bool:
        """Whether the settings name an account. Makes no request."""
        ...

    def account(self, settings: Settings) -> dict[str, str]:
        """Where machines are made, such as the subscription. A pool remembers it. Raises ConfigError."""
        ...

    def require_ready(self, settings: Settings) -> None:
        """Raises ConfigError where something is missing without which no machine could be created."""
        ...

    def speed(self, settings: Settings) -> float:
        """Seconds of the cloud per second of this machine's clock: 1, but for an emulator."""
        ...

    def size(self, name: str) -> str:
        """The size's own spelling. Raises NotFound."""
        ...

    def region(self, name: str) -> str:
        """Raises InputError for what cannot be a region."""
        ...

    def memory_gb(self, size: str) -> float | None: ...

    def family(self, size: str) -> str:
        """Sizes that share a quota have the same."""
        ...

    def open(self, settings: Settings, home: Home) -> AbstractAsyncContextManager[Cloud]:
        """Raises InputError where packages or settings are missing."""
        ...
