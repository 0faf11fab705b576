"""Azure's errors: the catalogue as a table, and that nothing is left without an answer."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.azure.error_causes import ErrorFacts, classify, facts_of
from evalfleet.azure.provider import AzureProvider
from evalfleet.pools.cloud import purchases
from evalfleet.pools.cloud.problems import ACTIONS, Action, Cause, Problem
from evalfleet.pools.cloud.purchases import Closed, Plan, Stop, Try, candidates, next_offer
from evalfleet.pools.cloud.records import Offering

PROVIDER = AzureProvider()

QUOTA = (
    "Operation could not be completed as it results in exceeding approved {} quota. Additional details - Deployment "
    "Model: Resource Manager, Location: eastus, Current Limit: {}, Current Usage: 8, Additional Required: 8, (Minimum) "
    "New Limit Required: 16."
)
CATALOGUE = [
    ("OperationNotAllowed", QUOTA.format("standardDDSv5Family Cores", 10), 409, Cause.FAMILY_QUOTA),
    ("OperationNotAllowed", QUOTA.format("Total Regional Cores", 10), 409, Cause.REGION_QUOTA),
    ("OperationNotAllowed", QUOTA.format("LowPriorityCores", 0), 409, Cause.SPOT_QUOTA),
    ("QuotaExceeded", QUOTA.format("standardDDSv5Family Cores", 10), 400, Cause.FAMILY_QUOTA),
    ("OperationNotAllowed", "The VM is being deleted.", 409, Cause.REQUEST),
    ("SkuNotAvailable", "is currently not available in location 'eastus'", 409, Cause.SKU),
    ("AllocationFailed", "Allocation failed.", 200, Cause.CAPACITY),
    ("ZonalAllocationFailed", "Allocation failed.", 200, Cause.CAPACITY),
    ("OverconstrainedAllocationRequest", "Constraints applied are: - VM Size", 200, Cause.CAPACITY),
    ("OSProvisioningTimedOut", "did not finish in the allotted time", 200, Cause.PROVISIONING),
    ("SpotPriceGreaterThanProvidedMaxPrice", "", 409, Cause.SPOT_REFUSED),
    ("TooManyRequests", "", 429, Cause.THROTTLED),
    ("", "", 429, Cause.THROTTLED),
    ("", "", 503, Cause.SERVER),
    ("", "Connection refused", None, Cause.SERVER),
    ("AuthorizationFailed", "does not have authorization", 403, Cause.AUTH),
    ("", "", 401, Cause.AUTH),
    ("ResourceNotFound", "", 404, Cause.NOT_FOUND),
    ("AnotherOperationInProgress", "", 409, Cause.CONFLICT),
    ("InvalidParameter", "", 400, Cause.REQUEST),
]


@pytest.mark.parametrize(("code", "message", "status", "cause"), CATALOGUE)
def test_catalogue(code: str, message: str, status: int | None, cause: Cause):
    problem = classify(ErrorFacts(code=code, message=message, status=status), region="eastus", size="Standard_D8ds_v5")
    assert problem.cause is cause
    assert problem.action is ACTIONS[cause]


@given(st.text(), st.text(), st.none() | st.integers(100, 599), st.none() | st.floats(0, 1e6))
def test_every_error_has_an_answer_of_one_line(code: str, message: str, status: int | None, retry: float | None):
    facts = ErrorFacts(code=code, message=message, status=status, retry_after_s=retry)
    problem = classify(facts, region="eastus")
    assert problem.action is ACTIONS[problem.cause]
    assert problem.message
    assert len(problem.message.splitlines()) == 1
    assert problem.wait_s >= 0
    assert problem.avoid_s >= 0


def test_every_cause_has_an_action():
    assert set(ACTIONS) == set(Cause)


def test_a_missing_quota_names_the_number_and_the_command():
    problem = classify(ErrorFacts(code="OperationNotAllowed", message=CATALOGUE[0][1], status=409), region="eastus")
    assert problem.quota is not None
    assert (problem.quota.missing, problem.quota.wanted) == (6, 16)
    assert (
        "standardDDSv5Family in eastus lacks 6 cores: limit 10, used 8, needed 8 more; ask for 16: az"
        in problem.message
    )
    assert "--resource-name standardDDSv5Family" in problem.message
    assert "value=16" in problem.message


@pytest.mark.parametrize(
    ("code", "message", "spot", "avoid_s"),
    [
        ("OperationNotAllowed", QUOTA.format("LowPriorityCores", 0), True, 3600),
        ("OperationNotAllowed", QUOTA.format("standardDDSv5Family Cores", 10), False, 600),
        ("SkuNotAvailable", "", False, 23 * 3600),
        ("SkuNotAvailable", "", True, 3600),
        ("AllocationFailed", "", False, 3600),
        ("InvalidParameter", "", False, 0),
    ],
)
def test_how_long_an_offer_is_not_worth_asking_for(code: str, message: str, spot: bool, avoid_s: float):
    assert classify(ErrorFacts(code=code, message=message, status=409), spot=spot).avoid_s == avoid_s


def test_facts_are_read_from_what_the_library_raises():
    inner = SimpleNamespace(code="OperationNotAllowed", message="no", details=None)
    response = SimpleNamespace(headers={"Retry-After": "7"})
    error = type("ResourceExistsError", (Exception,), {})("told")
    error.error, error.status_code, error.response = inner, 409, response  # pyright: ignore[reportAttributeAccessIssue]
    assert facts_of(error) == ErrorFacts(code="OperationNotAllowed", message="no", status=409, retry_after_s=7)
    assert facts_of(ValueError("x")) == ErrorFacts(message="x")
    assert facts_of(TimeoutError()).message == "TimeoutError"


# The plan of a creation

SIZES = ("Standard_D8ds_v5", "Standard_D8s_v5")
REGIONS = ("eastus", "westus2", "centralus")


def start(sizes: tuple[str, ...] = SIZES[:1], regions: tuple[str, ...] = REGIONS) -> Plan:
    return Plan(offers=candidates(sizes, regions))


def problem(code: str, message: str = "", status: int = 409, retry: float | None = None) -> Problem:
    return classify(ErrorFacts(code=code, message=message, status=status, retry_after_s=retry), region="r")


def follow(plan: Plan, problems: list[Problem]) -> tuple[list[Offering], Try | Stop, Plan, Closed]:
    """Go through a plan, and return every offer that was asked for and the last step."""
    closed, rng, asked = Closed(), random.Random(1), []
    plan, closed, step = next_offer(plan, None, closed, 0.0, rng, PROVIDER.family)
    for each in problems:
        assert isinstance(step, Try)
        asked.append(step.offering)
        plan, closed, step = next_offer(plan, each, closed, 0.0, rng, PROVIDER.family)
    return asked, step, plan, closed


def test_the_third_region_is_used():
    _, step, _, _ = follow(start(), [problem("SkuNotAvailable"), problem("AllocationFailed", status=200)])
    assert isinstance(step, Try)
    assert (step.offering.region, step.clear) == ("centralus", True)


def test_a_size_that_is_not_sold_gives_way_to_the_next_size_of_the_region():
    _, step, _, _ = follow(start(SIZES), [problem("SkuNotAvailable")])
    assert isinstance(step, Try)
    assert step.offering == Offering(size="Standard_D8s_v5", region="eastus")


def test_a_full_region_gives_way_to_the_next_region():
    _, step, _, _ = follow(start(SIZES), [problem("AllocationFailed", status=200)])
    assert isinstance(step, Try)
    assert step.offering == Offering(size="Standard_D8ds_v5", region="westus2")


def test_at_most_three_tries():
    asked, step, _, _ = follow(start(SIZES), [problem("AllocationFailed")] * 3)
    assert len(set(asked)) == purchases.TRIES
    assert isinstance(step, Stop)
    assert "after 3 tries" in step.message


def test_a_quota_is_what_the_stop_speaks_of():
    short = classify(
        ErrorFacts(code="OperationNotAllowed", message=QUOTA.format("Total Regional Cores", 10), status=409)
    )
    _, step, _, _ = follow(start(SIZES, REGIONS[:2]), [short, problem("AllocationFailed"), problem("AllocationFailed")])
    assert isinstance(step, Stop)
    assert "lacks 6 cores" in step.message


def test_a_regional_quota_closes_the_region_for_all_sizes():
    short = classify(
        ErrorFacts(code="OperationNotAllowed", message=QUOTA.format("Total Regional Cores", 10), status=409)
    )
    _, step, plan, closed = follow(start(SIZES), [short])
    assert isinstance(step, Try)
    assert step.offering.region == "westus2"
    assert all(closed.at(offer, 599) for offer in plan.offers if offer.region == "eastus")
    assert not any(closed.at(offer, 601) for offer in plan.offers)


def test_a_throttled_request_is_repeated_after_the_time_that_was_asked_for():
    asked, step, plan, _ = follow(start(), [problem("TooManyRequests", status=429, retry=7.0)])
    assert isinstance(step, Try)
    assert (step.offering, step.clear) == (asked[0], False)
    assert 7.0 <= step.after_s <= 7.0 * (1 + purchases.JITTER)
    assert plan.tries == 1


def test_a_storm_ends():
    storm = [problem("TooManyRequests", status=429)] * (purchases.WAITS + purchases.TRIES)
    _, step, _, _ = follow(start(), storm)
    assert isinstance(step, Stop)


def test_a_wrong_request_is_not_repeated():
    _, step, _, _ = follow(start(), [problem("InvalidParameter", "bad", 400)])
    assert isinstance(step, Stop)
    assert step.problem is not None
    assert step.problem.action is Action.GIVE_UP


def test_what_is_closed_for_all_is_not_asked_for_again():
    plan, closed, rng = start(), Closed(), random.Random(1)
    for offer in plan.offers:
        closed = closed.after(problem("AllocationFailed"), offer, plan.offers, 0.0, PROVIDER.family)
    _, _, step = next_offer(plan, None, closed, 1.0, rng, PROVIDER.family)
    assert isinstance(step, Stop)
    assert "failed lately" in step.message
