"""What must be known of one machine to go on with it after any crash; kept in its host's row."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct, field

from evalfleet.hosts.mailbox.costs import BoxCosts
from evalfleet.model import HostState, JsonObject, PoolHost
from evalfleet.pools.cloud.problems import Problem
from evalfleet.pools.cloud.purchases import Plan

BOX_KEPT_S = 3 * 86400.0  # at most, after its machine is gone: a run that paused on a Friday goes on on Monday


class Operation(Struct, frozen=True, kw_only=True):
    """A long operation that was begun."""

    verb: str
    continuation: str
    began_at: float | None = None  # None: an older version began it


class MachineFacts(Struct, frozen=True, kw_only=True):
    """Holds no secret: of host keys only the public halves."""

    plan: Plan | None = None
    problem: Problem | None = None  # why the last try failed, until the plan has heard of it
    wanted_size: str = ""  # of a pool with several sizes; empty: any of the pool's
    size: str = ""
    region: str = ""
    spot: bool = False
    price: Literal["known", "at_most", "unknown"] = "known"  # at_most: of a spot machine, that on demand
    keys: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # mark in the machine's label -> public half given to it
    host_key: str | None = None  # that it shows now
    next_key: str | None = None  # that it is about to show instead
    address: str | None = None
    port: int = 22
    jump: str | None = None  # user@address[:port] of a host on the way
    proxy: str | None = None  # a command that carries connections to it
    login_key: str | None = None  # path of the private half with which we log in
    boxes: dict[str, str] = field(default_factory=dict[str, str])  # mark -> where the box of that try is
    box: str | None = None  # where the machine is reached that cannot be called; without a right to enter
    generation: int = 0  # of its pilot: the number of the try that made it
    pilot: JsonObject | None = None  # what is pinned of the pilot, once it has proved itself
    box_costs: BoxCosts | None = None  # what requests to its box cost, as its pilot counts them
    lost_at: float | None = None  # when it was found to be gone; its box may be kept longer
    operation: Operation | None = None
    accepted_at: float | None = (
        None  # when the cloud took the order, until the machine is seen: new ones are not found at once
    )
    deadline_refused: str | None = None  # why it has no deadline yet, or why that cannot be moved
    deadline_at: float | None = None
    ends_soon: bool = False  # the time of its job is nearly over: another takes its place
    checks_s: dict[str, float] = field(default_factory=dict[str, float])  # how long each readiness check took to hold
    preempted: bool = False
    logs: str | None = None  # folder below the home with its logs, since it failed
    unwell: str | None = None  # why it was stopped, of one that is of no use
    unwell_at: float | None = None  # when it was last
    replaced: bool = False  # another took its place then

    @property
    def is_reached(self) -> bool:
        """Whether it is known where the machine is reached."""
        return self.address is not None or self.box is not None

    def generation_of(self, mark: str) -> int:
        """The number of the try that had this mark; 0 for none."""
        return list(self.keys).index(mark) + 1 if mark in self.keys else 0

    def to_json(self) -> JsonObject:
        return msgspec.to_builtins(self)


def facts_of(host: PoolHost) -> MachineFacts:
    return msgspec.convert(host.facts, MachineFacts)


def keeps_box(host: PoolHost, now: float, *, has_work: bool) -> bool:
    """Whether the box of a machine must outlive it: attempts that are not collected yet may have ended there and be in the box.

    Args:
        has_work: whether any run of this home has attempts on the machine that are live or not collected.
    """
    facts = facts_of(host)
    lost_at = facts.lost_at or (host.updated_at if host.state is HostState.LOST else now)
    return has_work and facts.box is not None and now - lost_at < BOX_KEPT_S


def mark_of(public: str) -> str:
    """A short name for a host key, which the machine that has it carries in a label."""
    return hashlib.sha256(public.encode()).hexdigest()[:12]
