"""The next state of a task whose attempt has failed: retried later, failed, or held for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from evalfleet.model import Blame, Failure, Kind, Policy

if TYPE_CHECKING:
    import random


_GROWTH = 2.0
_SERVICE_GROWTH = 4.0  # an endpoint that is down stays so for minutes, and a task has few attempts to lose


class Retry(Struct, frozen=True, kw_only=True):
    """Back to the queue; it occupies no worker while it waits."""

    not_before: float
    elsewhere: bool = False  # it has no attempt left, and waits for what another host says


class Fail(Struct, frozen=True, kw_only=True):
    """Final, and the task's own: it counts 0 in both scores."""

    reason: str


class Hold(Struct, frozen=True, kw_only=True):
    """Not the task's fault, or not ours to decide: a person must look, then `retry` or `release`."""

    reason: str


Decision = Retry | Fail | Hold


def decide(
    *,
    failure: Failure,
    consumed: int,
    lost: int,
    policy: Policy,
    now: float,
    rng: random.Random,
    elsewhere: bool = False,
) -> Decision:
    """The fate of the task. `consumed` and `lost` include this attempt, in the one that it counts towards.

    A task whose failures were all on one host is not final while another one could try it (`elsewhere`): it waits for that
    one. So it gets at most `attempts + max_lost + 1` attempts, whatever fails. The failure of a cancelled attempt gives `Hold`;
    a caller that cancelled it for a reason of its own (a controller that stops, a sibling that won, a cancelled task)
    does not ask, but releases or cancels the task. A hold that an operator asked for meanwhile is the store's to apply.
    """
    decided = _final(failure, consumed, lost, policy)
    if decided is not None and not (elsewhere and failure.retryable and failure.blame in (Blame.TASK, Blame.WORKER)):
        return decided
    growth = _SERVICE_GROWTH if failure.kind in (Kind.SERVICE_FAILED, Kind.SERVICE_REFUSED) else _GROWTH
    moment = now + delay_s(consumed if failure.consumes else lost, policy, rng, growth)
    return Retry(not_before=moment, elsewhere=decided is not None)


def is_spent(consumed: int, lost: int, policy: Policy) -> bool:
    """Whether a task has no attempt left: if it waits all the same, then for another host."""
    return consumed >= policy.attempts or lost >= policy.max_lost


def _final(failure: Failure, consumed: int, lost: int, policy: Policy) -> Fail | Hold | None:
    own = failure.blame is Blame.TASK
    if consumed >= policy.attempts and (failure.consumes or own):
        words = f"{consumed} of {policy.attempts} attempts used; last: {_words(failure)}"
        return Fail(reason=words) if own else Hold(reason=f"{words}; blamed on the {failure.blame}")
    if not failure.retryable:
        return Fail(reason=_words(failure)) if own else Hold(reason=_words(failure))
    if not failure.consumes and lost >= policy.max_lost:
        words = f"{lost} attempts lost through no fault of its own (at most {policy.max_lost})"
        return Hold(reason=f"{words}; last: {_words(failure)}")
    return None


def delay_s(count: int, policy: Policy, rng: random.Random, growth: float = _GROWTH) -> float:
    """Exponential back-off before the next attempt: 50 to 100 % of `retry_base_s * growth ** (count - 1)`, capped."""
    exponent = min(max(count, 1) - 1, 60)
    return min(policy.retry_cap_s, policy.retry_base_s * growth**exponent) * rng.uniform(0.5, 1.0)


def _words(failure: Failure) -> str:
    return f"{failure.kind}: {failure.evidence}" if failure.evidence else str(failure.kind)
