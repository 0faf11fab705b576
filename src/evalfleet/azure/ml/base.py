"""What clusters and compute instances of Azure ML have in common as a `Cloud`: money, quota, logs, labels."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evalfleet.azure import sizes
from evalfleet.azure.arm import judged
from evalfleet.azure.clients import Clients
from evalfleet.azure.cloud import AzureCloud, text_at
from evalfleet.azure.ml import responses
from evalfleet.azure.ml.responses import LABEL_OFFER, LABEL_STOPS
from evalfleet.azure.ml.workspace import Workspace
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import ACTIONS, Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    Endpoint,
    MachineSpec,
    Offering,
    Price,
    Quota,
    expires_of,
    expires_text,
)

SAME_S = 90.0  # by which two moments may differ that are the same deadline
# Names of logs that are the same on every job; others are called by their paths.
_LOGS = {"user_logs/std_log.txt": "job", "system_logs/lifecycler/lifecycler.log": "setup"}
_WORDS = re.compile(r"[^a-z0-9]")


class WorkspaceCloud:
    """Base of both. Neither keeps machines that are stopped, and neither moves a deadline: it is fixed with the request."""

    def __init__(self, clients: Clients, home: Home) -> None:
        self._settings = clients.settings
        self._arm = clients.arm
        self._workspace = Workspace(clients.arm, clients.settings)
        self._vms = AzureCloud(clients, home)  # knows sizes and prices

    @property
    def poll_s(self) -> float:
        return self._settings.poll_s

    @property
    def skew_s(self) -> float:
        return self._arm.skew_s

    def _labels(self, spec: MachineSpec, stops_at: float) -> dict[str, str]:
        ours = {LABEL_OFFER: responses.offer_text(spec.offering), LABEL_STOPS: expires_text(stops_at)}
        return {**self._settings.tags, **spec.labels(), **ours}

    async def endpoint(self, name: str) -> Endpoint | None:
        return None  # nodes only reach out

    async def log(self, name: str) -> str:
        return ""

    async def image(self, name: str) -> str | None:
        return name  # of a container: only its registry knows whether it is there

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        pass

    async def drop_deadline(self, name: str) -> None:
        pass

    # Money

    async def learn(self, offering: Offering) -> None:
        await self._vms.learn(offering)

    def price(self, offering: Offering, disk_gb: int) -> Price:
        """That of the VM; Azure ML itself costs nothing, and a node keeps nothing."""
        return replace(self._vms.price(offering, disk_gb), kept_usd_per_hour=0.0)

    async def quota(self, offering: Offering) -> Quota | None:
        await self.learn(offering)
        async with judged(offering.region):
            usages = await self._workspace.usages(offering.region)
        return tightest(usages, offering)

    # Deadlines

    def _require_deadline(self, labels: Mapping[str, str], at: float) -> None:
        if not is_deadline(labels, at):
            said = f"Azure ML ends it at {labels.get(LABEL_STOPS)}, and cannot move that"
            raise Refusal(Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=said))

    # Logs

    async def _read(self, files: Mapping[str, str], log: str, limit: int) -> str:
        """Read the log of that name among these files, each with its address."""
        path = next((path for path in files if log_name(path) == log), None)
        return "" if path is None else (await text_at(files[path]))[-limit:]


def log_name(path: str) -> str:
    return _LOGS.get(path, path.lower())


def log_names(files: Mapping[str, str]) -> Sequence[str]:
    """Ours first, the others after them."""
    first = list(_LOGS.values())
    return sorted(map(log_name, files), key=lambda name: (first.index(name) if name in first else len(first), name))


def is_deadline(labels: Mapping[str, str], at: float) -> bool:
    stops = expires_of({LABEL_EXPIRES: labels.get(LABEL_STOPS, "")})
    return stops is not None and abs(stops - at) <= SAME_S


def left_s(stops_at: float) -> float:
    return max(60.0, stops_at - time.time())


def tightest(usages: Mapping[str, tuple[int, int]], offering: Offering) -> Quota | None:
    """Of the counters that nodes of this size use, the one with the least left. Families are spelled in several ways."""
    if offering.spot:
        wanted = ["totalclusterlowpriorityregionalvcpus"]
    else:
        family = _WORDS.sub("", sizes.find(offering.size).family.lower())
        wanted = [f"{family}clusterdedicatedvcpus", "totalclusterdedicatedregionalvcpus"]
    rows = [(name, *row) for name, row in usages.items() if _WORDS.sub("", name.lower()) in wanted]
    if not rows:
        return None
    name, used, limit = min(rows, key=lambda row: row[2] - row[1])
    return Quota(family=name, used=used, limit=limit, region=offering.region)


def problem_of(message: str) -> Problem:
    """Why a job did not start. Without KVM the next try on such a node does no better."""
    if "/dev/kvm" in message:
        return Problem(cause=Cause.SKU, action=ACTIONS[Cause.SKU], message=f"its nodes have no KVM: {message}")
    return Problem(cause=Cause.START, action=ACTIONS[Cause.START], message=message)
