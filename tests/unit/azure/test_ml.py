"""What Azure ML says, read; what we ask for; and what a start that fails means for a plan. Pure."""

from __future__ import annotations

import random
from typing import Any

import pytest

from evalfleet.azure.ml import requests, responses
from evalfleet.azure.ml.base import is_deadline, log_names, tightest
from evalfleet.azure.ml.instances import startup_script
from evalfleet.azure.ml.responses import LABEL_BEGAN, LABEL_OFFER, LABEL_STOPS
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import ACTIONS, Cause, Problem
from evalfleet.pools.cloud.purchases import STARTS, TRIES, Closed, Plan, Stop, next_offer
from evalfleet.pools.cloud.records import LABEL_WORKER, Offering

OFFER = Offering(size="Standard_D4ds_v5", region="eastus", spot=True)


def job(status: str, **tags: str) -> dict[str, Any]:
    labels = {LABEL_WORKER: "m-1.abc", LABEL_OFFER: responses.offer_text(OFFER), **tags}
    return {"id": "/j", "name": "m-1-abc", "properties": {"status": status, "computeId": "/c", "tags": labels}}


@pytest.mark.parametrize(
    ("status", "began", "stage", "power"),
    [
        ("Queued", False, Stage.CREATING, None),
        ("Preparing", False, Stage.CREATING, None),
        ("Running", True, Stage.MADE, Power.RUNNING),
        ("Queued", True, Stage.FAILED, Power.RELEASED),  # its node was taken away
        ("CancelRequested", True, Stage.DELETING, None),
        ("Failed", False, Stage.FAILED, Power.RELEASED),
        ("NotResponding", True, Stage.MADE, Power.RUNNING),  # only its pilot can tell
    ],
)
def test_a_job_is_a_machine(status: str, began: bool, stage: Stage, power: Power | None):
    view = responses.job_view(job(status, **({LABEL_BEGAN: "2026-01-01T00:00:00Z"} if began else {})))
    assert (view.name, view.size, view.region, view.spot) == ("m-1", OFFER.size, OFFER.region, True)
    assert (view.stage, view.power) == (stage, power)
    assert (view.problem is not None) == (power is Power.RELEASED)


def test_a_cluster_says_why_no_node_comes():
    said = {"error": {"code": "ClusterCoreQuotaReached", "message": "exceeded its quota."}}
    body = {"properties": {"properties": {"errors": [said]}}}
    problem = responses.cluster_problem(body, OFFER)
    assert problem is not None
    assert problem.cause is Cause.SPOT_QUOTA
    assert "not the quota of VMs" in problem.message
    assert responses.cluster_problem({"properties": {"properties": {"errors": []}}}, OFFER) is None
    gone = responses.cluster_problem(None, OFFER)
    assert gone is not None
    assert "deleted outside evalfleet" in gone.message


def test_the_counter_with_the_least_left_binds():
    usages = {
        "Standard DDSv5 Family Cluster Dedicated vCPUs": (4, 48),
        "Total Cluster Dedicated Regional vCPUs": (90, 100),
        "Total Cluster LowPriority Regional vCPUs": (0, 8),
    }
    dedicated = tightest(usages, Offering(size=OFFER.size, region="eastus"))
    low = tightest(usages, OFFER)
    assert dedicated is not None
    assert low is not None
    assert (dedicated.used, dedicated.limit) == (90, 100)
    assert (low.used, low.limit) == (0, 8)
    assert tightest({}, OFFER) is None


def test_a_deadline_is_known_by_its_label():
    assert is_deadline({LABEL_STOPS: "2026-01-01T00:00:00Z"}, 1767225600.0)
    assert not is_deadline({LABEL_STOPS: "2026-01-01T00:00:00Z"}, 1767229200.0)
    assert not is_deadline({}, 1767225600.0)


def test_logs_have_names_and_ours_come_first():
    files = dict.fromkeys(["system_logs/x.log", "system_logs/lifecycler/lifecycler.log", "user_logs/std_log.txt"], "")
    assert log_names(files) == ["job", "setup", "system_logs/x.log"]


def test_secrets_of_an_instance_survive_the_shell():
    script = startup_script("echo 'it''s'", {"TOKEN": "a'b $c"})
    assert "export TOKEN='a'\"'\"'b $c'" in script
    assert requests.duration(0) == "PT1S"


@pytest.mark.parametrize(("cause", "tries"), [(Cause.START, STARTS), (Cause.PROVISIONING, TRIES)])
def test_a_program_that_does_not_start_is_tried_more_often_than_a_machine_that_fails(cause: Cause, tries: int):
    problem = Problem(cause=cause, action=ACTIONS[cause], message="no")
    plan, closed, rng = Plan(offers=(OFFER,)), Closed(), random.Random(1)
    plan, closed, step = next_offer(plan, None, closed, 0.0, rng, str)
    made = 0
    while not isinstance(step, Stop):
        made += 1
        plan, closed, step = next_offer(plan, problem, closed, 0.0, rng, str)
    assert made == tries
