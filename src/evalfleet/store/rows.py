"""Between database rows and records. Rows are mappings by column name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from evalfleet.model import (
    AccessToken,
    Attempt,
    AttemptState,
    Blame,
    Device,
    Event,
    Failure,
    HostState,
    JsonObject,
    Kind,
    Outcome,
    Policy,
    Pool,
    PoolHost,
    Request,
    Requests,
    Role,
    Run,
    RunState,
    Task,
    TaskSpec,
    TaskState,
    Verb,
    Verdict,
    Wish,
)

Row = Mapping[str, Any]

_encoder = msgspec.json.Encoder()
_policy = msgspec.json.Decoder(Policy)
_spec = msgspec.json.Decoder(TaskSpec)
_devices = msgspec.json.Decoder(tuple[Device, ...])


def to_json(value: object) -> str:
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        return _encoder.encode(_clean(msgspec.to_builtins(value))).decode()


def _clean(value: Any) -> Any:
    """Without the half characters that programs may print and JSON may escape, but no database takes."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_clean(key): _clean(item) for key, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_clean(item) for item in cast("list[Any]", value)]
        case _:
            return value


def from_json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def attempt_id(run_id: str, task_number: int, number: int) -> str:
    return f"{run_id}.{task_number}.{number}"


def pool(row: Row) -> Pool:
    return Pool(
        name=row["name"],
        backend=row["backend"],
        settings=from_json(row["settings"]) or {},
        created_at=row["created_at"],
        owner=row["owner"],
        epoch=row["epoch"],
        deleting=bool(row["deleting"]),
        reason=from_json(row["reason"]),
    )


def host(row: Row) -> PoolHost:
    return PoolHost(
        name=row["name"],
        pool=row["pool"],
        number=row["number"],
        wish=Wish(row["wish"]),
        state=HostState(row["state"]),
        reason=row["reason"],
        rung=row["rung"],
        facts=from_json(row["facts"]) or {},
        usd_per_hour=row["usd_per_hour"],
        kept_usd_per_hour=row["kept_usd_per_hour"],
        made_at=row["made_at"],
        allocated_since=row["allocated_since"],
        allocated_s=row["allocated_s"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        gone_at=row["gone_at"],
    )


def run(row: Row) -> Run:
    return Run(
        id=row["id"],
        name=row["name"],
        state=RunState(row["state"]),
        reason=from_json(row["reason"]),
        open=bool(row["open"]),
        policy=_policy.decode(row["policy"]),
        folder=row["folder"],
        base_env=cast("dict[str, str]", from_json(row["base_env"])),
        owner=row["owner"],
        epoch=row["epoch"],
        cancelling=bool(row["cancelling"]),
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def task(row: Row) -> Task:
    return Task(
        run_id=row["run_id"],
        number=row["number"],
        spec=_spec.decode(row["spec"]),
        state=TaskState(row["state"]),
        not_before=row["not_before"],
        hold_asked=bool(row["hold_asked"]),
        consumed=row["consumed"],
        lost=row["lost"],
        attempts=row["attempts"],
        expected_s=row["expected_s"],
        verdict=verdict(row),
        failure=failure(row),
        reason=row["reason"],
        duration_s=row["duration_s"],
        worker=row["worker"],
    )


def attempt(row: Row) -> Attempt:
    devices = _devices.decode(row["devices"])
    return Attempt(
        id=attempt_id(row["run_id"], row["task_number"], row["number"]),
        run_id=row["run_id"],
        task_number=row["task_number"],
        number=row["number"],
        state=AttemptState(row["state"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        token=row["token"],
        lease_expires_at=row["lease_expires_at"],
        host=row["host"],
        worker=row["worker"],
        requests=_requests(row, devices),
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        ready_at=row["ready_at"],
        ended_at=row["ended_at"],
        duration_s=row["duration_s"],
        step=row["step"],
        cost_usd=row["cost_usd"],
        reported_usd=row["reported_usd"],
        last_event=row["last_event"],
        end=from_json(row["end_record"]),
        verdict=verdict(row),
        failure=failure(row),
        judge_version=row["judge_version"],
        devices=devices,
    )


def _requests(row: Row, devices: tuple[Device, ...]) -> Requests:
    """The memory of its GPUs is kept with them."""
    asked = next((device.memory_mb for device in devices), None)
    return Requests(gpus=row["gpus"], memory_mb=row["memory_mb"], gpu_memory_mb=asked or 0)


def verdict(row: Row) -> Verdict | None:
    if row["score"] is None:
        return None
    metrics = cast("JsonObject", from_json(row["metrics"]) or {})
    return Verdict(score=row["score"], success=bool(row["success"]), steps=row["steps"], metrics=metrics)


def failure(row: Row) -> Failure | None:
    if row["kind"] is None:
        return None
    return Failure(
        kind=Kind(row["kind"]),
        blame=Blame(row["blame"]),
        retryable=bool(row["retryable"]),
        consumes=bool(row["consumes"]),
        evidence=row["evidence"],
    )


def event(row: Row) -> Event:
    return Event(
        number=row["number"],
        run_id=row["run_id"],
        at=row["at"],
        type=row["type"],
        task=row["task"],
        attempt=row["attempt"],
        data=from_json(row["data"]),
    )


def access_token(row: Row) -> AccessToken:
    return AccessToken(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        digest=row["digest"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


def request(row: Row) -> Request:
    return Request(
        number=row["number"],
        run_id=row["run_id"],
        verb=Verb(row["verb"]),
        args=from_json(row["args"]),
        asked_by=row["asked_by"],
        asked_at=row["asked_at"],
    )


def verdict_columns(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"score": None, "success": None, "steps": None, "metrics": None}
    return {
        "score": verdict.score,
        "success": int(verdict.success),
        "steps": verdict.steps,
        "metrics": to_json(verdict.metrics) if verdict.metrics else None,
    }


def failure_columns(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {"kind": None, "blame": None, "retryable": None, "consumes": None, "evidence": None}
    return {
        "kind": str(failure.kind),
        "blame": str(failure.blame),
        "retryable": int(failure.retryable),
        "consumes": int(failure.consumes),
        "evidence": _clean(failure.evidence),
    }
