"""A scenario file: quotas, how long things take, and what goes wrong, in TOML.

::

    seed = 7
    unregistered = ["Microsoft.DevTestLab"]

    [[role]]                   # without any, everything is allowed
    scope = "evalfleet"        # a resource group, or "subscription"
    actions = ["Microsoft.Compute/*", "*/read"]

    [times]                    # in cloud seconds
    create = 60

    [[sku]]                    # a size that the package does not know
    name = "Standard_D8ds_v9"
    vcpus = 8
    memory_gb = 32
    family = "StandardDdsv9Family"

    [quota.eastus]
    standardDDSv5Family = 16

    [[fault]]
    op = "vm.create"
    match = { location = "westus2" }
    preset = "allocation_failed"
    times = 2

    [[eviction]]               # of spot machines
    after = 300                # cloud seconds
    share = 0.3                # or count = 1
    silent = true              # nobody is told
    every = 180

    [[batch]]                  # a Batch account; without any, there is one: evalfleet in eastus
    name = "evalfleet"
    region = "eastus"
    dedicated_cores = 0        # "account without quota"

    [[outage]]                 # every call to a service is refused
    service = "batch"          # its data plane; "ml" is Azure Machine Learning
    after = 300                # cloud seconds
    lasts = 600

    [[link]]                   # of machines whose name fits
    name = "evalfleet-2"
    at = 120                   # cloud seconds after the machine began to run
    blocked = true             # or latency_s = 5
    lasts = 60                 # cloud seconds
"""

from __future__ import annotations

import math
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.presets import BOOT, DOCKER, PRESETS
from evalfleet.errors import ConfigError
from evalfleet.validation import explain


class Times(msgspec.Struct, forbid_unknown_fields=True):
    """How long Azure takes, in its own seconds."""

    create: float = 45.0
    start: float = 30.0
    deallocate: float = 40.0
    delete: float = 20.0
    network: float = 2.0
    notice: float = 30.0  # between the warning of an eviction and its end
    snapshot: float = 10.0
    image: float = 600.0  # a version of an image, with its replicas
    pull: float = 180.0  # of a container's image
    register: float = 10.0  # of a provider
    lag: float = 0.0  # after its request, until a new VM can be looked at
    group_lag: float = 0.0  # until things can be made in a new resource group
    preempted: float = 120.0  # between the loss of a Batch node and its return
    ml_compute: float = 10.0  # until a cluster of Azure ML is there, without nodes
    ml_node: float = 120.0  # until a node of it is
    ml_job: float = 5.0  # until a job is in the queue of its cluster
    windows: float = 120.0  # between the start of a container and the first answer of Windows in it


class Eviction(msgspec.Struct, forbid_unknown_fields=True):
    """Spot machines that Azure takes back."""

    after: float = 0.0
    count: int = 1
    share: float | None = None  # of those that run, in the place of a count
    name: str = "*"  # pattern
    silent: bool = False  # without the notice
    every: float | None = None  # again and again

    def of(self, running: int) -> int:
        """Return how many of so many machines go; a share takes at least one."""
        wanted = self.count if self.share is None else max(1, math.floor(self.share * running + 0.5))
        return min(wanted, running)


class LinkChange(msgspec.Struct, forbid_unknown_fields=True):
    """A machine's network that is cut or slow for a while."""

    name: str
    at: float = 0.0  # cloud seconds after the machine began to run, each time it does
    blocked: bool = False
    latency_s: float = 0.0  # each way; real seconds
    lasts: float | None = None  # cloud seconds; None: until it is healed by hand


class BatchAccount(msgspec.Struct, forbid_unknown_fields=True):
    """A Batch account, and how many cores its nodes may have."""

    name: str = "evalfleet"
    region: str = "eastus"
    dedicated_cores: int = 1000
    low_priority_cores: int = 1000
    allocation_mode: str = "BatchService"  # or "UserSubscription"


class Outage(msgspec.Struct, forbid_unknown_fields=True):
    """A service that refuses every call for a while, in cloud seconds."""

    service: str
    after: float = 0.0
    lasts: float | None = None  # None: for good


class Policy(msgspec.Struct, forbid_unknown_fields=True):
    """A policy that is assigned, by the id of its definition; `azure.account.policies` knows those that matter to us."""

    definition: str
    name: str = "assigned"
    parameters: dict[str, list[str]] = {}


class Role(msgspec.Struct, forbid_unknown_fields=True):
    """What the principal may do, and where."""

    scope: str = "subscription"  # or the name of a resource group
    actions: list[str] = []  # such as "Microsoft.Compute/*"
    not_actions: list[str] = []


class Sku(msgspec.Struct, forbid_unknown_fields=True):
    """A size that this cloud sells besides those of the package's table, as Azure sells new ones."""

    name: str
    vcpus: int
    memory_gb: float
    family: str
    usd_per_hour: float = 1.0
    gpus: int = 0
    temporary_disk_gb: int = 0
    generations: str = "V1,V2"
    arm: bool = False


class Scenario(msgspec.Struct, forbid_unknown_fields=True):
    """What a scenario file may say."""

    seed: int = 0
    unregistered: list[str] = []  # providers, such as Microsoft.DevTestLab
    page: int | None = None  # items on a page of a list; None: all on one
    lock: list[str] = []  # resource groups in which nothing can be deleted
    clock_ahead: float = 0.0  # seconds that this cloud's clock is ahead of this machine's
    subscription: str = "Enabled"  # its state
    address_limit: int = 1000  # public addresses in a region
    restricted: dict[str, list[str]] = {}  # region -> sizes that are not sold to this subscription
    sku: list[Sku] = []
    policy: list[Policy] = []
    role: list[Role] | None = None  # None: everything is allowed
    times: Times = msgspec.field(default_factory=Times)
    quota: dict[str, dict[str, int]] = {}
    fault: list[Fault] = []
    eviction: list[Eviction] = []
    batch: list[BatchAccount] = msgspec.field(default_factory=lambda: [BatchAccount()])
    new_batch_cores: int = 1000  # of accounts that are made later: dedicated and low-priority ones each
    workspaces: list[str] = msgspec.field(default_factory=lambda: ["evalfleet"])  # of Azure ML, there from the start
    outage: list[Outage] = []
    link: list[LinkChange] = []


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    try:
        scenario = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Scenario)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, Scenario, {})}.") from None
    for fault in scenario.fault:
        check(fault, str(path))
    for eviction in scenario.eviction:
        check_eviction(eviction, str(path))
    return scenario


def check(fault: Fault, where: str) -> None:
    """Refuse a fault that would do nothing.

    Raises:
        ConfigError: names its place and the remedy.
    """
    if fault.preset is not None:
        _check_preset(fault.preset, fault.op, where)
    elif not (fault.hang or fault.drop or fault.delay or fault.exit is not None):
        raise ConfigError(f"{where}: a fault needs one of preset, delay, hang, drop or exit.")


def check_eviction(eviction: Eviction, where: str) -> None:
    """Refuse an eviction that cannot be.

    Raises:
        ConfigError: names its place and the remedy.
    """
    if eviction.share is not None and not 0 < eviction.share <= 1:
        raise ConfigError(f"{where}: eviction.share: must be above 0 and at most 1, such as 0.3.")
    if eviction.count < 1:
        raise ConfigError(f"{where}: eviction.count: must be at least 1.")


def _check_preset(preset: str, op: str, where: str) -> None:
    for known, wanted in ((BOOT, "host.boot"), (DOCKER, "host.docker")):
        if preset in known and not fnmatchcase(wanted, op):
            raise ConfigError(
                f'{where}: preset "{preset}" is for {wanted}; the fault is for {op}, so it would do nothing.'
            )
    if preset in PRESETS and op.startswith("host."):
        raise ConfigError(f'{where}: preset "{preset}" is an answer of Azure; {op} is something on a machine.')
    if preset not in {**PRESETS, **BOOT, **DOCKER}:
        known = ", ".join((*PRESETS, *BOOT, *DOCKER))
        raise ConfigError(f'{where}: preset: there is no "{preset}"; known: {known}.')
