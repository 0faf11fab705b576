"""An order of tasks in which every prefix is a fair sample: each domain in proportion, and hashed inside a domain.

For runs whose budget may end them early. Longest first would leave the verdicts of the longest domains alone, the order of the file
those of its first ones, and a score over either is not the benchmark's.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct

ENOUGH = 1.2
"""A budget of at least this many times the projected cost will not end a run early, even if attempts fail and costs vary."""


class Member(Struct, frozen=True, kw_only=True):
    number: int
    key: str
    domain: str
    begun: bool = False  # it runs or is over: what comes next makes up for what it lacks


def is_scarce(budget_usd: float, projected_usd: float | None) -> bool:
    """Whether the budget may end the run early. `projected_usd`: what all its tasks should cost; None: nothing is known."""
    return projected_usd is None or budget_usd < ENOUGH * projected_usd


def places(tasks: Iterable[Member]) -> dict[int, float]:
    """For each task, by number, its place in the order, between 0 and 1.

    The i-th of a domain's n tasks stands at (i - 1/2) / n. Inside a domain a hash of the key decides, so that two runs of the same
    tasks begin with the same ones and can be compared.
    """
    domains: dict[str, list[Member]] = {}
    for task in tasks:
        domains.setdefault(task.domain, []).append(task)
    found: dict[int, float] = {}
    for members in domains.values():
        members.sort(
            key=lambda one: (not one.begun, blake2b(one.key.encode("utf-8", "replace"), digest_size=8).digest())
        )
        found |= {one.number: (place + 0.5) / len(members) for place, one in enumerate(members)}
    return found
