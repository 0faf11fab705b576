"""Who may take the next free slot of a pool: the fair-share rule.

The slots are divided among users by their weights (`core.shares.division`). Of the slots of one user, runs of higher priority take what
they can use before the others; runs of the same priority share by the weights of their projects. Runs of one user, priority and
project are a *group*; they take turns, as the slots of their hosts decide.

A priority orders the runs of one user and takes nothing from others. A group that has waited for `STARVED_S` without any slot gets one
of its user's, whatever its priority.

Nothing that runs is ended. Who has more than their share starts nothing until enough of it has ended, and who has less starts. Each
controller evaluates the rule for itself: the same facts give the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from evalfleet.core.shares.division import Part, divide

STARVED_S = 600.0


class Group(Struct, frozen=True, kw_only=True):
    """The runs of one user, priority and project that share a pool, and what they have and want there."""

    user: str
    project: str = ""
    priority: int = 0
    live: int = 0  # slots that they have
    wanted: int = 0  # slots that they could use, with those that they have
    used_s: float = 0.0  # slot time of late of this user and project
    waits_s: float = 0.0  # for how long they have had no slot, and wanted one

    @property
    def demand(self) -> int:
        return max(self.wanted, self.live)

    @property
    def is_starved(self) -> bool:
        return self.live == 0 and self.wanted > 0 and self.waits_s >= STARVED_S


class Weights(Struct, frozen=True, kw_only=True):
    """How users compare, and projects. Who is not named has the weight of `*`, and else 1."""

    users: Mapping[str, float] = field(default_factory=dict[str, float])
    projects: Mapping[str, float] = field(default_factory=dict[str, float])

    def of_user(self, name: str) -> float:
        return self.users.get(name, self.users.get("*", 1.0))

    def of_project(self, name: str) -> float:
        return self.projects.get(name, self.projects.get("*", 1.0))


class Allotment(Struct, frozen=True, kw_only=True):
    """How many slots each user should have, and each group, by its place."""

    users: Mapping[str, int]
    groups: Sequence[int]


class Standing(Struct, frozen=True, kw_only=True):
    """What the rule says to one group."""

    slots: int  # of the pool
    share: int  # of its user
    others_live: int  # slots that other users have
    live: int  # slots that runs of its user have
    room: int  # how many more slots the group may take now; below 0: it has that many too many
    first: int | None = None  # the priority of runs of its user that come first, where there are some

    @property
    def words(self) -> str:
        """Why the group waits, where it does."""
        share = f"your share is {self.share} of {self.slots} slots, {self.others_live} run for others"
        if not self.others_live and self.live:
            share = f"your runs have {self.live} of {self.slots} slots"
        return share if self.first is None else f"{share}; your runs with priority {self.first} go first"


def standing(slots: int, groups: Sequence[Group], own: int, weights: Weights) -> Standing:
    """What the group at place `own` of `groups` may do with the `slots` of a pool."""
    allotted = allot(slots, groups, weights)
    me = groups[own]
    share = allotted.users[me.user]
    live = sum(group.live for group in groups if group.user == me.user)
    above = [
        group.priority for group in groups if group.user == me.user and group.priority > me.priority and group.wanted
    ]
    return Standing(
        slots=slots,
        share=share,
        others_live=sum(group.live for group in groups) - live,
        live=live,
        room=min(share - live, allotted.groups[own] - me.live),
        first=max(above, default=None),
    )


def allot(slots: int, groups: Sequence[Group], weights: Weights) -> Allotment:
    """Divide the slots of a pool among users, and those of each user among their groups."""
    by_user: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        by_user.setdefault(group.user, []).append(place)
    parts = [_user_part([groups[place] for place in places], weights.of_user(user)) for user, places in by_user.items()]
    shares = dict(zip(by_user, divide(slots, parts), strict=True))
    given = [0] * len(groups)
    for user, places in by_user.items():
        for place, count in zip(
            places, _among([groups[place] for place in places], shares[user], weights), strict=True
        ):
            given[place] = count
    return Allotment(users=shares, groups=given)


def _among(groups: Sequence[Group], share: int, weights: Weights) -> list[int]:
    """Within one user: to the starved first, then by priority, then by the weights of projects."""
    given = [0] * len(groups)
    starved = sorted(
        (place for place, group in enumerate(groups) if group.is_starved), key=lambda at: -groups[at].waits_s
    )
    for place in starved[:share]:
        given[place] = 1
    left = share - sum(given)
    for priority in sorted({group.priority for group in groups}, reverse=True):
        level = [place for place, group in enumerate(groups) if group.priority == priority]
        parts = [
            Part(
                weight=weights.of_project(groups[place].project),
                wanted=groups[place].demand - given[place],
                used_s=groups[place].used_s,
            )
            for place in level
        ]
        more = divide(left, parts)
        for place, count in zip(level, more, strict=True):
            given[place] += count
        left -= sum(more)
    return given


def _user_part(groups: Sequence[Group], weight: float) -> Part:
    """The slot time of a project counts once, however many priorities its runs have."""
    used = {group.project: group.used_s for group in groups}
    return Part(weight=weight, wanted=sum(group.demand for group in groups), used_s=sum(used.values()))
