"""The bodies of requests to Batch, as plain objects. Pure.

A machine is one job whose main task (`jobManagerTask`) is the pilot: it is made in one request, its metadata are our labels, and its
time limit, which counts from its creation, is the deadline that needs no controller. The machines of one size and kind share a Batch
pool, whose formula holds as many nodes as there are jobs, and none after the last deadline.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from evalfleet.azure.settings import AzureSettings
from evalfleet.pools.cloud.records import LABEL_OWNER, LABEL_POOL, MachineSpec

PILOT = "pilot"  # id of the task
SIZE, REGION, SPOT = "evalfleet-size", "evalfleet-region", "evalfleet-spot"  # besides our labels
INTERVAL = "PT5M"  # between two evaluations of a formula; Batch takes no less
_HOUR_S = 3600.0
_ADMIN = {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}
_AGENT = "batch.node.ubuntu 22.04"
_PLAIN = {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts", "version": "latest"}
_DOCKER = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
# The pilot needs a Python; an image that has none gets one.
_START = """set -e
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' || { apt-get update -q; apt-get install -y -q python3; }
echo "$AZ_BATCH_NODE_ID has $(python3 --version)"
"""


def pool_id(pool: str, owner: str, size: str, *, spot: bool) -> str:
    """The Batch pool of such machines: no other home, size or kind has the same."""
    whole = f"{owner}/{pool}/{size.lower()}/{spot}"
    slug = re.sub(r"[^A-Za-z0-9-]+", "-", pool)[:40]
    return f"evalfleet-{slug}-{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


def pool_body(spec: MachineSpec, reach: AzureSettings) -> dict[str, Any]:
    """A Batch pool for machines such as this one, without nodes.

    No security profile is named: Batch knows only trusted launch and confidential VMs, and what is left out is `Standard`, on which
    nested virtualization works.
    """
    image = {"virtualMachineImageId": spec.image} if spec.image else (_DOCKER if spec.images else _PLAIN)
    machine: dict[str, Any] = {"imageReference": image, "nodeAgentSKUId": _AGENT}
    if spec.images:
        machine["containerConfiguration"] = {"type": "dockerCompatible", "containerImageNames": list(spec.images)}
    machine["osDisk"] = {"diskSizeGB": spec.disk_gb}
    labels = {LABEL_POOL: spec.pool, LABEL_OWNER: spec.owner}
    found: dict[str, Any] = {
        "id": pool_id(spec.pool, spec.owner, spec.size, spot=spec.spot),
        "vmSize": spec.size,
        "virtualMachineConfiguration": machine,
        "taskSlotsPerNode": 1,
        "enableAutoScale": True,
        "autoScaleFormula": formula(0, 0.0, spot=spec.spot),
        "autoScaleEvaluationInterval": INTERVAL,
        "targetNodeCommunicationMode": "simplified",
        "startTask": start_task(spec.images),
        "metadata": _items({**reach.tags, **labels, SIZE: spec.size, SPOT: str(spec.spot).lower()}),
    }
    subnet = reach.subnets.get(spec.region)
    if subnet is not None:
        network: dict[str, Any] = {"subnetId": subnet}
        if not reach.public_ip:
            network["publicIPAddressConfiguration"] = {"provision": "nopublicipaddresses"}
        found["networkConfiguration"] = network
    return found


def start_task(images: tuple[str, ...]) -> dict[str, Any]:
    """What makes a node ready for pilots: a Python, and the images of containers."""
    script = _START + "".join(f"docker pull {shlex.quote(image)}\n" for image in images)
    return {
        "commandLine": f"/bin/sh -c {shlex.quote(script)}",
        "waitForSuccess": True,
        "maxTaskRetryCount": 1,
        "userIdentity": _ADMIN,
    }


def job_body(spec: MachineSpec, stops_at: float, now: float) -> dict[str, Any]:
    """A machine."""
    assert spec.pilot is not None, "Batch nodes are reached through boxes"
    labels = {**spec.labels(), SIZE: spec.size, REGION: spec.region, SPOT: str(spec.spot).lower()}
    return {
        "id": spec.name,
        "poolInfo": {"poolId": pool_id(spec.pool, spec.owner, spec.size, spot=spec.spot)},
        "metadata": _items(labels),
        "constraints": limits(stops_at - now),
        "jobManagerTask": {
            "id": PILOT,
            "commandLine": f"/bin/sh -c {shlex.quote('exec ' + spec.pilot.command)}",
            "environmentSettings": _items(spec.pilot.secrets),
            "userIdentity": _ADMIN,
            "killJobOnCompletion": True,
            "runExclusive": True,
            "constraints": {"maxTaskRetryCount": 0},
        },
    }


def limits(left_s: float) -> dict[str, Any]:
    """The time that a job may take from its creation on."""
    return {"maxWallClockTime": f"PT{max(1, math.ceil(left_s))}S", "maxTaskRetryCount": 0}


def moved_labels(labels: Mapping[str, str], extra: Mapping[str, str]) -> list[dict[str, str]]:
    return _items({**labels, **extra})


def formula(nodes: int, until: float, *, spot: bool) -> str:
    """So many nodes until the first full hour after that moment, and then none, whether a controller lives or not."""
    kind, other = ("LowPriority", "Dedicated") if spot else ("Dedicated", "LowPriority")
    at = datetime.fromtimestamp(math.ceil(until / _HOUR_S) * _HOUR_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    count = f'time() < time("{at}") ? {nodes} : 0' if nodes else "0"
    return f"$Target{kind}Nodes = {count};\n$Target{other}Nodes = 0;\n$NodeDeallocationOption = taskcompletion;"


def _items(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
