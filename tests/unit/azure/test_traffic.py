"""The check of the emulator's traffic: what Azure's own description does not know is found, with its path and the reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import azure_traffic
from tests.support.azure_bodies import SPECS

pytestmark = pytest.mark.skipif(not SPECS.exists(), reason="the official files are not here")
GROUP = "/subscriptions/s/resourceGroups/g"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
VM: dict[str, Any] = {"location": "eastus", "properties": {}}


def exchange(method: str, path: str, **changes: Any) -> dict[str, Any]:
    plain = {"query": "api-version=2024-07-01", "headers": {"User-Agent": "azsdk-python"}, "request": None}
    return {"method": method, "path": path, **plain, "status": 200, "answer": None, "answer_headers": {}, **changes}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", answer={**VM, "odd": 1}), "answer.odd: not in the schema"),
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", answer={}), "answer.location: required"),
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", answer={"location": 1}), "answer.location: 1 is no string"),
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", answer=VM, query=""), "?api-version: required"),
        (
            exchange("GET", f"{COMPUTE}/virtualMachines/a", answer=VM, query="api-version=1&odd=2"),
            "?odd: not a parameter",
        ),
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", status=203, answer=VM), "203: not one of its answers"),
        (exchange("GET", f"{COMPUTE}/virtualMachines/a", status=404, answer={"x": 1}), "without error.code"),
        (exchange("PUT", f"{COMPUTE}/virtualMachines/a", answer=VM), "a body is required"),
        (
            exchange("PUT", f"{COMPUTE}/virtualMachines/a", answer=VM, request={**VM, "id": "x"}),
            "request.id: read-only",
        ),
        (exchange("POST", f"{COMPUTE}/virtualMachines/a/start", status=202), "without the address where"),
        (exchange("DELETE", f"{COMPUTE}/virtualMachines/a", answer={"x": 1}), "an answer without a body has one"),
        (exchange("GET", f"{COMPUTE}/disks/a", answer={"location": "x", "properties": {}}), "creationData: required"),
        (exchange("GET", f"{COMPUTE}/galleries/e", answer={"odd": 1}), "Gallery has no such member"),
        (exchange("GET", f"{COMPUTE}/odd/e", answer={}), "neither a file nor a shape"),
        (
            exchange("GET", f"{GROUP}/providers/Microsoft.Authorization/permissions", answer={"value": [{"odd": 1}]}),
            "answer.value[0].odd: not in the schema",
        ),
    ],
)
def test_what_azure_does_not_know_is_found(said: dict[str, Any], reason: str):
    with pytest.raises(AssertionError) as caught:
        azure_traffic.check([said])
    assert reason in str(caught.value)
    assert said["path"] in str(caught.value)


def test_a_newer_version_than_the_file_is_read_by_the_library():
    newer = {**VM, "properties": {"securityProfile": {"securityType": "Standard"}, "networkProfile": {}}}
    said = exchange("PUT", f"{COMPUTE}/virtualMachines/a", request=newer, answer=newer, query="api-version=2026-04-01")
    azure_traffic.check([said])


def test_what_a_test_says_wrong_on_purpose_is_not_read():
    said = exchange("PUT", f"{COMPUTE}/virtualMachines/a", request={"odd": 1}, status=400, headers={}, answer={})
    azure_traffic.check([said])
