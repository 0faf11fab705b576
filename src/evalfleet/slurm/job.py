"""One job of ours as `squeue` shows it, read into a machine. Pure.

Labels are in the job's comment, as JSON behind a word of ours; nothing without that word is ever touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Action, Cause, Problem
from evalfleet.pools.cloud.records import LABEL_EXPIRES, LABEL_OWNER, LABEL_POOL, MachineView, expires_of, expires_text

MARK = "evalfleet "
SIZE, REGION, BOX = "size", "region", "box"  # in the comment, besides our labels
FORMAT = "%i|%T|%r|%L|%N|%j|%k"  # for squeue; the comment may contain anything, so it is the last
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED")
_RUNS = ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDS = ("COMPLETING",)
# What the state says of a job that is over.
_OVER = {
    "COMPLETED": "its pilot has ended",
    "CANCELLED": "its job was cancelled: by scancel, or by an administrator",
    "TIMEOUT": "its job reached its time limit",
    "DEADLINE": "its job reached its deadline",
    "PREEMPTED": "its job was preempted by another one",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not boot",
    "OUT_OF_MEMORY": "its job used more memory than it has (--option mem=)",
    "FAILED": "its pilot ended with an error",
    "REVOKED": "its job was revoked",
}
_TAKEN = ("PREEMPTED", "TIMEOUT", "DEADLINE")  # known beforehand: no fault of the node, of nobody's
# Slurm's reasons for which a job waits, by their beginnings, in plain words.
_REASONS = {
    "Priority": "other jobs come first",
    "Resources": "no node has enough free",
    "Dependency": "the machine that had its name still ends",
    "None": "Slurm has not looked at it yet",
    "BeginTime": "Slurm holds it back for a while",
    "QOSMax": "the QOS allows no more at a time",
    "QOSGrp": "the QOS is used up by its users together",
    "QOSMin": "the QOS asks for larger jobs",
    "QOSJobLimit": "the QOS allows no more jobs",
    "QOSResourceLimit": "the QOS allows no more resources",
    "QOSUsageThreshold": "the QOS is used up",
    "AssocMax": "the account allows no more at a time",
    "AssocGrp": "the account is used up by its users together",
    "AssociationJobLimit": "the account allows no more jobs",
    "AssociationResourceLimit": "the account allows no more resources",
    "Reservation": "its reservation has not begun",
    "Licenses": "no licence is free",
    "Cleaning": "what it was before is being cleaned up",
    "JobHeldUser": "it is held; `scontrol release` lets it go on",
    "JobHeldAdmin": "an administrator holds it",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionConfig": "no node of the partition has that much",
    "Prolog": "its node is being prepared",
}
# Waiting does not help: what was asked for must change.
_HOPELESS = {
    "PartitionTimeLimit": "the partition allows less time; ask for less (--time)",
    "PartitionNodeLimit": "the partition does not allow this number of nodes",
    "BadConstraints": "no node has what was asked for; change cpus, mem, gpus or constraint",
    "InvalidAccount": "the account is not valid here (--option account=)",
    "InvalidQOS": "the QOS is not valid here (--option qos=)",
    "AccountNotAllowed": "the partition does not allow this account (--option account=)",
    "AccountingPolicy": "the account's rules forbid such a job",
    "QOSNotAllowed": "the partition does not allow this QOS (--option qos=)",
    "QOSTimeLimit": "the QOS allows less time; ask for less (--time)",
    "DeadLine": "it cannot be over before its deadline",
}


class Job(Struct, frozen=True, kw_only=True):
    """A line of squeue."""

    id: int
    state: str
    reason: str
    left_s: float | None  # of its time; of one that waits all of it; None: it is not limited, or not known
    nodes: str
    name: str
    labels: dict[str, str]

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs. One that is not known to be over is."""
        return self.state not in _ENDS and self.state not in _OVER

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in _OVER

    @property
    def whose(self) -> tuple[str, str, str]:
        """Two live jobs with the same are one machine, asked for twice."""
        return self.name, self.labels.get(LABEL_OWNER, ""), self.labels.get(LABEL_POOL, "")

    @property
    def waits(self) -> str | None:
        """Why it does not run yet, for people."""
        if self.state not in _WAITS:
            return None
        return f"job {self.id} waits in Slurm's queue: {_why(self.reason, _REASONS)}"

    @property
    def hopeless(self) -> Problem | None:
        """Why it never runs, if Slurm says so."""
        if self.state != "PENDING" or self.reason not in _HOPELESS:
            return None
        said = f"Slurm never starts job {self.id}: {_why(self.reason, _HOPELESS)}"
        return Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=said)

    def view(self, name: str, now: float) -> MachineView:
        """The machine that it is.

        Args:
            name: of the machine.
            now: seconds since 1970.
        """
        stage, power = Stage.MADE, Power.RUNNING
        if self.state in _WAITS:
            stage, power = Stage.CREATING, None
        elif self.state in _ENDS:
            stage, power = Stage.DELETING, Power.STOPPING
        elif self.is_over:
            power = Power.RELEASED
        ends_at = None if self.left_s is None or not self.is_live else now + self.left_s
        labels = {key: value for key, value in self.labels.items() if key not in (SIZE, REGION, BOX)}
        if ends_at is not None:  # the time of one that waits has not begun
            labels[LABEL_EXPIRES] = expires_text(max(ends_at, expires_of(labels) or 0.0))
        return MachineView(
            name=name,
            region=self.labels.get(REGION, ""),
            size=self.labels.get(SIZE, ""),
            spot=False,
            labels=labels,
            stage=stage,
            power=power,
            problem=self.end,
            ends_at=ends_at if power is Power.RUNNING else None,
        )

    @property
    def end(self) -> Problem | None:
        """How it ended; None while it is not over."""
        if not self.is_over:
            return None
        where = f" on {self.nodes}" if self.nodes else ""
        cause = Cause.PREEMPTED if self.state in _TAKEN else Cause.PROVISIONING
        said = f"{_OVER[self.state]} (Slurm: job {self.id}{where} is {self.state})"
        return Problem(cause=cause, action=Action.NEXT_REGION, message=said)


def jobs_of(text: str) -> list[Job]:
    """The jobs of ours among the lines of squeue."""
    return [job for line in text.splitlines() if (job := _job(line)) is not None]


def comment_of(labels: Mapping[str, str]) -> str:
    return MARK + json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _job(line: str) -> Job | None:
    fields = line.strip().split("|", 6)
    if len(fields) != 7 or not fields[0].isdecimal() or not fields[6].startswith(MARK):
        return None
    try:
        labels = {str(key): str(value) for key, value in json.loads(fields[6].removeprefix(MARK)).items()}
    except (ValueError, AttributeError):
        return None
    number, state, reason, left, nodes, name = fields[:6]
    return Job(id=int(number), state=state, reason=reason, left_s=_seconds(left), nodes=nodes, name=name, labels=labels)


def _seconds(text: str) -> float | None:
    """Of `1-02:03:04`, `2:03:04` or `3:04`."""
    days, _, clock = text.rpartition("-")
    try:
        numbers = [int(part) for part in clock.split(":")]
        whole = int(days or 0) * 86400
    except ValueError:
        return None  # UNLIMITED, INVALID
    return whole + float(sum(number * 60**place for place, number in enumerate(reversed(numbers))))


def _why(reason: str, known: Mapping[str, str]) -> str:
    """Slurm's word, and what it means."""
    bare = reason.strip("()")
    meaning = next((text for word, text in known.items() if bare.startswith(word)), None)
    return f"{meaning} ({bare})" if meaning else bare or "no reason is given"
