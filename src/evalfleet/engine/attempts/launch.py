"""Makes the launch of a claimed task, for its runner."""

from __future__ import annotations

from pathlib import Path

from evalfleet.core.cost import max_cost_usd
from evalfleet.hosts.base import CanarySpec, Launch
from evalfleet.model import Attempt, Device, JsonObject, Run, Task, TaskSpec


def launch_of(run: Run, task: Task, attempt: Attempt, secrets: dict[str, str], valid_for_s: float) -> Launch:
    spec, policy = task.spec, run.policy
    data: JsonObject = {
        "key": spec.key,
        "domain": spec.domain,
        "number": attempt.number,
        "command": list(spec.command),
        "cwd": run.folder,
        "env": run.base_env | spec.env | _seed(spec),
        "payload": spec.payload,
        "timeout_s": spec.timeout_s or policy.timeout_s,
        "stall_s": spec.stall_s or policy.stall_s,
        "start_timeout_s": spec.start_timeout_s or policy.start_timeout_s,
        "progress": policy.progress,
        "around": _around(run, task),
    }
    bound = max_cost_usd(policy, spec)
    if bound is not None:
        data |= {"max_cost_usd": bound, "price_usd_per_hour": attempt.price_usd_per_hour}
    if attempt.devices:
        data |= {"gpus": [_gpu(device) for device in attempt.devices], "gpu_env": spec.gpu_env}
    return Launch(
        attempt_id=attempt.id,
        spec=data,
        secrets=secrets,
        valid_for_s=valid_for_s,
        inherited=frozenset(run.base_env.keys() - spec.env.keys()),
        files={name: Path(run.folder, name) for name in policy.files},
    )


def _seed(spec: TaskSpec) -> dict[str, str]:
    return {} if spec.seed is None else {"EVALFLEET_SEED": str(spec.seed)}


def _gpu(device: Device) -> JsonObject:
    return {"uuid": device.uuid, "index": device.index, "memory_mb": device.memory_mb}


def _around(run: Run, task: Task) -> str | None:
    """The program that the runner starts around the command: a trial may have a server. Other payloads are not read."""
    payload = task.spec.payload
    return "server" if run.policy.study is not None and isinstance(payload, dict) and "server" in payload else None


def canary_of(run: Run, canary: str, spec: CanarySpec, valid_for_s: float) -> Launch:
    """A launch without a task. A command of the run finds the run's files, like its tasks."""
    own = run.policy.canary
    data: JsonObject = {
        "key": "canary",
        "domain": "canary",
        "number": 1,
        "command": list(own or spec.command),
        "cwd": run.folder,
        "env": run.base_env,
        "payload": None,
        "timeout_s": spec.timeout_s,
        "stall_s": None,
        "start_timeout_s": None,
        "progress": "output",
    }
    return Launch(
        attempt_id=canary,
        spec=data,
        secrets={},
        valid_for_s=valid_for_s,
        inherited=frozenset(run.base_env),
        files={name: Path(run.folder, name) for name in run.policy.files} if own else {},
        takes_slot=False,  # a host must not seem broken because others use it
    )
