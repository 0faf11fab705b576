"""What Azure ML says of jobs and computes, read into plain records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalfleet.azure.error_causes import ErrorFacts, classify
from evalfleet.azure.responses import inside
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import ACTIONS, Cause, Problem
from evalfleet.pools.cloud.records import LABEL_EXPIRES, LABEL_WORKER, Kind, MachineView, Offering, Resource, expires_of

LABEL_OFFER = "evalfleet-offer"  # size/region/priority: a job names only its compute
LABEL_BEGAN = "evalfleet-began"  # the job was seen running: one that waits again has lost its node
LABEL_PREPARED = "evalfleet-prepared"  # the job was seen with its node getting the image
LABEL_STOPS = "evalfleet-stops"  # when Azure ends it
ENDED = ("Completed", "Failed", "Canceled")
WAITING = ("NotStarted", "Starting", "Provisioning", "Preparing", "Queued")
QUEUED = "Queued"
PREPARING = "Preparing"
_ENDING = ("CancelRequested", "Finalizing")
_INSTANCE_POWERS = {
    "Running": Power.RUNNING,
    "JobRunning": Power.RUNNING,
    "Stopped": Power.RELEASED,
    "Stopping": Power.STOPPING,
    "Starting": Power.STARTING,
    "Restarting": Power.STARTING,
}
_INSTANCE_FAILED = ("CreateFailed", "SetupFailed", "UserSetupFailed", "Unusable")
_QUOTA_CODES = ("clustercorequotareached", "clusterminnodesexceedcorequota", "vmfamilyquotareached")


class JobView(MachineView, frozen=True, kw_only=True):
    """A machine that is a job."""

    job: str
    compute_id: str
    status: str  # in Azure's words


def offer_text(offering: Offering) -> str:
    return f"{offering.size}/{offering.region}/{'low' if offering.spot else 'dedicated'}"


def offer_of(labels: Mapping[str, str]) -> Offering:
    size, region, priority = (labels.get(LABEL_OFFER, "") + "//").split("/")[:3]
    return Offering(size=size, region=region, spot=priority == "low")


def name_of(labels: Mapping[str, str]) -> str:
    """The machine that a resource is: its worker's name without the mark."""
    return labels.get(LABEL_WORKER, "").rpartition(".")[0]


def since(labels: Mapping[str, str], label: str, now: float) -> float:
    """How many seconds ago the label was set; 0 where it was not."""
    at = expires_of({LABEL_EXPIRES: labels.get(label, "")})
    return 0.0 if at is None else now - at


def job_view(body: Mapping[str, Any]) -> JobView:
    """Read a job that holds a pilot."""
    properties: Any = body["properties"]
    labels: dict[str, str] = dict(properties.get("tags") or {})
    offer, status = offer_of(labels), str(properties.get("status") or "")
    is_back = status in WAITING and LABEL_BEGAN in labels  # its node was taken away: nothing that ran there is left
    return JobView(
        name=name_of(labels),
        job=body["name"],
        compute_id=properties["computeId"],
        status=status,
        region=offer.region,
        size=offer.size,
        spot=offer.spot,
        labels=labels,
        stage=Stage.FAILED if is_back else _stage(status),
        power=Power.RELEASED if is_back else _power(status),
        problem=_ended_problem(str(body["name"]), status, is_back=is_back),
    )


def _ended_problem(job: str, status: str, *, is_back: bool) -> Problem | None:
    if not is_back and status not in ENDED:
        return None
    said = f"the job {job} lost its node, and waits for another" if is_back else f"the job {job} is {status}"
    return Problem(cause=Cause.START, action=ACTIONS[Cause.START], message=said)


def _stage(status: str) -> Stage:
    if status in WAITING:
        return Stage.CREATING
    if status in _ENDING:
        return Stage.DELETING
    return Stage.FAILED if status in ENDED else Stage.MADE


def _power(status: str) -> Power | None:
    if status in ENDED:
        return Power.RELEASED
    return None if status in (*WAITING, *_ENDING) else Power.RUNNING


def instance_view(body: Mapping[str, Any]) -> MachineView:
    """Read a compute instance that runs a pilot."""
    properties: Any = body["properties"]
    labels: dict[str, str] = dict(body.get("tags") or {})
    state = str(inside(properties, "properties", "state") or "Creating")
    stage = Stage.CREATING if state in ("Creating", "SettingUp", "UserSettingUp") else Stage.MADE
    if state in _INSTANCE_FAILED or properties.get("provisioningState") == "Failed":
        stage = Stage.FAILED
    if state == "Deleting" or properties.get("provisioningState") == "Deleting":
        stage = Stage.DELETING
    return MachineView(
        name=name_of(labels),
        region=str(body["location"]),
        size=str(inside(properties, "properties", "vmSize") or ""),
        spot=False,
        labels=labels,
        stage=stage,
        power=_INSTANCE_POWERS.get(state),
        problem=instance_problem(body) if stage is Stage.FAILED else None,
    )


def instance_problem(body: Mapping[str, Any]) -> Problem:
    state = inside(body["properties"], "properties", "state")
    said = f"the compute instance {body['name']} is {state}; its setup log says why"
    return Problem(cause=Cause.PROVISIONING, action=ACTIONS[Cause.PROVISIONING], message=said)


def cluster_problem(body: Mapping[str, Any] | None, offering: Offering) -> Problem | None:
    """Why a cluster brings no nodes; None: it says nothing of the kind."""
    if body is None:
        said = "its cluster was deleted outside evalfleet; the next job makes another"
        return Problem(cause=Cause.PROVISIONING, action=ACTIONS[Cause.PROVISIONING], message=said)
    errors: Any = inside(body["properties"], "properties", "errors") or ()
    for each in errors:
        code, text = str(inside(each, "error", "code") or ""), str(inside(each, "error", "message") or "")
        if code.lower() in _QUOTA_CODES or "quota" in text.lower():
            cause = Cause.SPOT_QUOTA if offering.spot else Cause.FAMILY_QUOTA
            said = (
                f"Azure ML's quota in {offering.region} has no place for {offering.size}: {text} Ask for more in the portal "
                "(Azure ML, Quota); it is not the quota of VMs"
            )
            return Problem(cause=cause, action=ACTIONS[cause], message=said, code=code, avoid_s=600.0)
        facts = ErrorFacts(code=code, message=text, status=200)
        return classify(facts, region=offering.region, size=offering.size, spot=offering.spot)
    return None


def job_resource(body: Mapping[str, Any]) -> Resource:
    view = job_view(body)
    return Resource(
        id=body["id"],
        name=view.name,
        kind=Kind.MACHINE,
        type=body["type"],
        region=view.region,
        labels=view.labels,
        machine=view.name,
    )


def compute_resource(body: Mapping[str, Any]) -> Resource:
    """A cluster, which the machines of a pool share, or a compute instance, which is one."""
    labels: dict[str, str] = dict(body.get("tags") or {})
    is_cluster = inside(body["properties"], "computeType") == "AmlCompute"
    name = body["name"] if is_cluster else name_of(labels)
    return Resource(
        id=body["id"],
        name=name,
        kind=Kind.NETWORK if is_cluster else Kind.MACHINE,
        type=body["type"],
        region=str(body["location"]),
        labels=labels,
        machine=None if is_cluster else name,
        order=1,
    )
