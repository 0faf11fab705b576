"""The rate limit of a run's requests to one model at one endpoint. Pure: time and randomness are arguments.

Requests are given moments one after the other. The distance between two is what the configured limits ask for, or what
the endpoint's refusals have taught: each halves the rate, each answer adds a little to it. A refusal also stops
everybody until the moment that the endpoint named.

A moment that is given and not used, because its process was killed, costs nothing but itself.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct
from msgspec.structs import replace

LONGEST_PAUSE_S = 900.0  # whatever an endpoint says
_SLOWEST_S = 15.0  # between two requests; who must go slower is told so by longer pauses
_LONGEST_OWN_S = 60.0  # of a pause that the endpoint did not ask for
_FASTEST_S = 0.02  # below it the distance is none
_FIRST_S = 1.0  # between two requests, where the first of all was refused
_GAIN_PER_S = 1 / 60  # requests per second that an answer adds: one per minute
_RECENT = 32
_RECENT_S = 60.0
_FIRST_TOKENS = 1000.0  # of a request, until one has told
_LEARN = 0.3  # weight of the newest request in what is expected of the next
_BURST_S = 10.0  # of the tokens per minute may be used at once


class Limits(Struct, frozen=True, kw_only=True):
    """The configured limits; None means no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class Pace(Struct, frozen=True, kw_only=True):
    """The shared state of all workers of a run for one model. Times are of one clock that they share."""

    paused_until: float = 0.0
    next_at: float = 0.0  # earliest moment of the next request
    distance_s: float = 0.0  # learned, between two requests; 0 where nothing was refused yet
    generation: int = 0  # rises with every refusal that counts; a moment of an older one is void
    refusals: int = 0  # since the last answer
    recent: tuple[float, ...] = ()  # moments that were given
    debt: float = 0.0  # tokens used beyond what has flowed in, at `debt_at`; below 0: still free
    debt_at: float = 0.0
    usual_tokens: float = _FIRST_TOKENS


class Turn(Struct, frozen=True, kw_only=True):
    """The moment at which one request may be sent."""

    at: float
    generation: int
    tokens: float  # that were set aside for it


def take_turn(pace: Pace, limits: Limits, now: float) -> tuple[Pace, Turn]:
    """Give the next free moment to a request."""
    distance = max(pace.distance_s, 60.0 / limits.requests_per_minute if limits.requests_per_minute else 0.0)
    at = max(now, pace.paused_until, pace.next_at)
    tokens = 0.0
    if limits.tokens_per_minute:
        flow = limits.tokens_per_minute / 60.0
        debt = max(-flow * _BURST_S, pace.debt - flow * (now - pace.debt_at))
        at = max(at, now + debt / flow)
        tokens = pace.usual_tokens
        pace = replace(pace, debt=debt + tokens, debt_at=now)
    pace = replace(pace, next_at=at + distance, recent=(*pace.recent, at)[-_RECENT:])
    return pace, Turn(at=at, generation=pace.generation, tokens=tokens)


def holds(pace: Pace, turn: Turn, now: float) -> bool:
    """Whether a turn is still valid; if not, take another one, because a request was refused in the meantime."""
    return pace.generation == turn.generation and pace.paused_until <= now


def give_back(pace: Pace, turn: Turn) -> Pace:
    """Take back the tokens that were reserved for a request that is not sent."""
    return replace(pace, debt=pace.debt - turn.tokens)


def answered(pace: Pace, turn: Turn, tokens: int) -> Pace:
    """Learn from an answer: a little faster, if it was asked at the present rate."""
    distance = pace.distance_s
    if distance and turn.generation == pace.generation:
        distance = 1.0 / (1.0 / distance + _GAIN_PER_S)
        distance = distance if distance > _FASTEST_S else 0.0
    usual = pace.usual_tokens + _LEARN * (tokens - pace.usual_tokens) if tokens else pace.usual_tokens
    debt = pace.debt + tokens - turn.tokens if turn.tokens and tokens else pace.debt
    return replace(pace, distance_s=distance, refusals=0, usual_tokens=usual, debt=debt)


def refused(pace: Pace, turn: Turn, now: float, wait_s: float | None, rng: Random) -> Pace:
    """Learn from a refusal: all requests wait, then continue at half the rate.

    Requests that were under way when another was refused tell nothing new: only the first of them slows the rest.

    Args:
        pace: what is known.
        turn: of the refused request.
        now: the moment of the refusal.
        wait_s: what the endpoint asked for; None: longer with each refusal.
        rng: keeps runs on several machines from coming back at the same moment.
    """
    news = turn.generation == pace.generation
    if wait_s is None:
        wait_s = min(_LONGEST_OWN_S, 2.0**pace.refusals) * (0.5 + rng.random()) if news else 0.0
    until = max(pace.paused_until, now + min(max(wait_s, 0.0), LONGEST_PAUSE_S))
    if not news:
        return replace(pace, paused_until=until, next_at=max(pace.next_at, until))
    distance = min(_SLOWEST_S, 2.0 * max(pace.distance_s, _measured(pace.recent, now)))
    return replace(
        pace,
        paused_until=until,
        next_at=until,
        distance_s=distance,
        generation=pace.generation + 1,
        refusals=pace.refusals + 1,
        recent=(),
    )


def paused(pace: Pace, now: float, wait_s: float) -> Pace:
    """Make all requests wait: the endpoint is down, which says nothing about its rate limit."""
    return replace(pace, paused_until=max(pace.paused_until, now + min(wait_s, LONGEST_PAUSE_S)))


def _measured(recent: tuple[float, ...], now: float) -> float:
    """Return the mean distance of the latest requests."""
    latest = [at for at in recent if now - _RECENT_S <= at <= now]
    if len(latest) < 2:
        return _FIRST_S
    return max(_FASTEST_S, (latest[-1] - latest[0]) / (len(latest) - 1))
