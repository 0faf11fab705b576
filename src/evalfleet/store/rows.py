"""Between database rows and records."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from evalfleet.errors import StoreCorrupt
from evalfleet.model import (
    AccessToken,
    Attempt,
    AttemptState,
    Blame,
    DesiredState,
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
    User,
    Verb,
    Verdict,
)
from evalfleet.store.database.base import Row

S = TypeVar("S", bound=msgspec.Struct)
_T = TypeVar("_T")

_encoder = msgspec.json.Encoder()
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
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
    return None if text is None else _decoded(_any, text)


def _decoded(decoder: msgspec.json.Decoder[_T], text: str) -> _T:
    """What was stored as JSON. Raises StoreCorrupt, where something else has written into the file."""
    try:
        return decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"the database is damaged (a record cannot be understood: {error}); `evalfleet doctor` says more"
        ) from error


def attempt_id(run_id: str, task_number: int, number: int) -> str:
    return f"{run_id}.{task_number}.{number}"


def record(kind: type[S], row: Row, **read: Any) -> S:
    """A record whose fields are the columns of the same names, but for those that are `read` already."""
    for name in kind.__struct_fields__:
        if name not in read:
            read[name] = row[name]
    return kind(**read)


def pool(row: Row) -> Pool:
    return record(
        Pool,
        row,
        settings=from_json(row["settings"]) or {},
        deleting=bool(row["deleting"]),
        reason=from_json(row["reason"]),
    )


def host(row: Row) -> PoolHost:
    return record(
        PoolHost,
        row,
        desired=DesiredState(row["desired"]),
        state=HostState(row["state"]),
        facts=from_json(row["facts"]) or {},
        forced=bool(row["forced"]),
    )


def run(row: Row) -> Run:
    return record(
        Run,
        row,
        state=RunState(row["state"]),
        reason=from_json(row["reason"]),
        open=bool(row["open"]),
        policy=_decoded(_policy, row["policy"]),
        base_env=from_json(row["base_env"]),
        cancelling=bool(row["cancelling"]),
        pausing=from_json(row["pausing"]),
        tags=from_json(row["tags"]),
    )


def task(row: Row) -> Task:
    return record(
        Task,
        row,
        spec=_decoded(_spec, row["spec"]),
        state=TaskState(row["state"]),
        hold_asked=bool(row["hold_asked"]),
        verdict=verdict(row),
        failure=failure(row),
    )


def attempt(row: Row) -> Attempt:
    devices = _decoded(_devices, row["devices"])
    return record(
        Attempt,
        row,
        id=attempt_id(row["run_id"], row["task_number"], row["number"]),
        state=AttemptState(row["state"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        requests=_requests(row, devices),
        end=from_json(row["end_record"]),
        verdict=verdict(row),
        failure=failure(row),
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
    return record(Event, row, data=from_json(row["data"]))


def access_token(row: Row) -> AccessToken:
    return record(AccessToken, row, role=Role(row["role"]))


def user(row: Row) -> User:
    return record(User, row, role=Role(row["role"]), disabled=bool(row["disabled"]))


def request(row: Row) -> Request:
    return record(Request, row, verb=Verb(row["verb"]), args=from_json(row["args"]))


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
