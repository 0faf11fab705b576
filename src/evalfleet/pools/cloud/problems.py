"""Why a cloud refused something, and what to do about it. Cloud-neutral: each cloud translates its own errors into these."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from evalfleet.answers.machines import MissingQuota
from evalfleet.errors import CloudError


class Cause(StrEnum):
    """Why a call or an operation failed."""

    SPOT_QUOTA = "spot_quota"
    FAMILY_QUOTA = "family_quota"
    REGION_QUOTA = "region_quota"
    SKU = "sku"  # the size is not sold there (to us, now)
    CAPACITY = "capacity"  # sold, but no machine is free
    SPOT_REFUSED = "spot_refused"  # bid too low, or the size is not sold as spot
    IMAGE = "image"  # our image has no replica there
    PROVISIONING = "provisioning"  # the machine was created and did not come up
    START = "start"  # the machine was had, and its program did not start: the next try may do better
    PREEMPTED = "preempted"  # the machine was there, and the cloud took it back
    THROTTLED = "throttled"
    SERVER = "server"  # the cloud failed, or gave no answer at all
    CONFLICT = "conflict"  # another operation is under way on the same thing
    NOT_FOUND = "not_found"
    AUTH = "auth"
    LOCKED = "locked"  # a lock forbids to delete or change it
    REQUEST = "request"  # our request is wrong; asking again changes nothing


class Action(StrEnum):
    """What to do next."""

    NEXT_SIZE = "next_size"
    NEXT_REGION = "next_region"
    WAIT = "wait"
    ASK_QUOTA = "ask_quota"
    GIVE_UP = "give_up"


ACTIONS: dict[Cause, Action] = {
    Cause.SPOT_QUOTA: Action.ASK_QUOTA,
    Cause.FAMILY_QUOTA: Action.ASK_QUOTA,
    Cause.REGION_QUOTA: Action.ASK_QUOTA,
    Cause.SKU: Action.NEXT_SIZE,
    Cause.CAPACITY: Action.NEXT_REGION,
    Cause.SPOT_REFUSED: Action.GIVE_UP,
    Cause.IMAGE: Action.NEXT_REGION,
    Cause.PROVISIONING: Action.NEXT_REGION,
    Cause.START: Action.WAIT,
    Cause.PREEMPTED: Action.NEXT_REGION,
    Cause.THROTTLED: Action.WAIT,
    Cause.SERVER: Action.WAIT,
    Cause.CONFLICT: Action.WAIT,
    Cause.NOT_FOUND: Action.GIVE_UP,
    Cause.AUTH: Action.GIVE_UP,
    Cause.LOCKED: Action.GIVE_UP,
    Cause.REQUEST: Action.GIVE_UP,
}


class Problem(Struct, frozen=True, kw_only=True):
    """An error, judged."""

    cause: Cause
    action: Action
    message: str  # one line: what, why, and what to do
    code: str = ""
    wait_s: float = 0.0  # before the same thing may be asked again
    avoid_s: float = 0.0  # how long the offer is not worth asking for
    quota: MissingQuota | None = None


class Refusal(CloudError):
    """The cloud refused."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
