"""The bodies of requests to Azure Machine Learning. Pure."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Body = dict[str, Any]
API = "2024-04-01"
IDLE_S = 120.0  # after it a cluster gives a node back that has no job
SHARED_MEMORY = "8g"  # of a container: browsers and simulators need more than Docker's own 64 MB


def cluster_body(
    *, region: str, size: str, spot: bool, most: int, labels: Mapping[str, str], identity: str | None = None
) -> Body:
    """A cluster without nodes, which come when jobs wait for them.

    Args:
        identity: id of a managed identity, with which nodes pull images.
    """
    body: Body = {
        "location": region,
        "tags": dict(labels),
        "properties": {
            "computeType": "AmlCompute",
            "properties": {
                "osType": "Linux",
                "vmSize": size,
                "vmPriority": "LowPriority" if spot else "Dedicated",
                "remoteLoginPortPublicAccess": "Disabled",
                "scaleSettings": {
                    "minNodeCount": 0,
                    "maxNodeCount": most,
                    "nodeIdleTimeBeforeScaleDown": duration(IDLE_S),
                },
            },
        },
    }
    return body | _identified(identity)


def instance_body(
    *, region: str, size: str, labels: Mapping[str, str], script: str, stops_at: float, identity: str | None = None
) -> Body:
    """A compute instance that runs a script at each start, and that Azure stops at a moment."""
    moment = datetime.fromtimestamp(math.ceil(stops_at / 60) * 60, UTC)
    stop = {
        "action": "Stop",
        "status": "Enabled",
        "triggerType": "Cron",
        "cron": {
            "startTime": moment.strftime("%Y-%m-%dT%H:%M:%S"),
            "timeZone": "UTC",
            "expression": f"{moment.minute} {moment.hour} * * *",
        },
    }
    startup = {"scriptSource": "inline", "scriptData": base64.b64encode(script.encode()).decode(), "timeout": "10m"}
    body: Body = {
        "location": region,
        "tags": dict(labels),
        "properties": {
            "computeType": "ComputeInstance",
            "properties": {
                "vmSize": size,
                "applicationSharingPolicy": "Personal",
                "sshSettings": {"sshPublicAccess": "Disabled"},
                "setupScripts": {"scripts": {"startupScript": startup}},
                "schedules": {"computeStartStop": [stop]},
            },
        },
    }
    return body | _identified(identity)


def environment_body(image: str, labels: Mapping[str, str]) -> Body:
    """An environment that is an image, and nothing else."""
    return {"properties": {"image": image, "osType": "Linux", "isAnonymous": False, "tags": dict(labels)}}


def job_body(
    *,
    compute_id: str,
    environment_id: str,
    command: str,
    variables: Mapping[str, str],
    labels: Mapping[str, str],
    timeout_s: float,
    docker_args: str = "",
) -> Body:
    """A command job that takes one whole node, and that Azure cancels when its time is over."""
    return {
        "properties": {
            "jobType": "Command",
            "displayName": labels.get("evalfleet-worker", "evalfleet"),
            "experimentName": "evalfleet",
            "computeId": compute_id,
            "environmentId": environment_id,
            "command": command,
            "environmentVariables": dict(variables),
            "resources": {"instanceCount": 1, "shmSize": SHARED_MEMORY, "dockerArgs": docker_args},
            "limits": {"jobLimitsType": "Command", "timeout": duration(timeout_s)},
            "tags": dict(labels),
            "isArchived": False,
        }
    }


def duration(seconds: float) -> str:
    """ISO 8601, in whole seconds."""
    return f"PT{max(1, round(seconds))}S"


def _identified(identity: str | None) -> Body:
    """Nodes always have an identity of their own; with one that is named they also get its rights."""
    if identity is None:
        return {"identity": {"type": "SystemAssigned"}}
    return {"identity": {"type": "SystemAssigned,UserAssigned", "userAssignedIdentities": {identity: {}}}}
