"""The JSON messages of a guest, and the names of errors in them."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, to_builtins

from evalfleet.actions import Action, from_json
from evalfleet.environments.base import LARGEST_FILE, Executed, Probe
from evalfleet.errors import EnvironmentFailed, EpisodeOver, EvalfleetError, InputError

LARGEST_UPLOAD = LARGEST_FILE
LARGEST_BODY = 16 << 20
LONGEST_EXECUTION_S = 3600.0
KINDS: dict[str, tuple[int, type[EvalfleetError]]] = {
    "input": (400, InputError),
    "over": (410, EpisodeOver),
    "environment": (503, EnvironmentFailed),
}


class Order(Struct, frozen=True, kw_only=True):
    """A program to be run."""

    command: list[str]
    stdin: bytes
    env: dict[str, str]
    timeout_s: float


def status_of(error: EvalfleetError) -> tuple[int, str]:
    """Return the HTTP status and the kind of an error."""
    for name, (status, kind) in KINDS.items():
        if isinstance(error, kind):
            return status, name
    return 500, "guest"


def action_of(body: bytes) -> Action:
    return from_json(_object(body))


def order_of(body: bytes) -> Order:
    """Return the order in a request to `/execute` or `/setup/launch`. Raises InputError."""
    given = _object(body)
    known = {"command", "stdin", "stdin_base64", "env", "timeout_s"}
    for name in given:
        if name not in known:
            raise InputError(f"unknown key {name!r}; known: {', '.join(sorted(known))}.")
    command, env, timeout_s = given.get("command"), given.get("env", {}), given.get("timeout_s", 60.0)
    if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in cast("list[Any]", command)):
        raise InputError('the command must be a list of strings, such as ["ls", "-l"].')
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in cast("dict[str, Any]", env).values()):
        raise InputError("env must be an object of strings.")
    number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not number or not math.isfinite(timeout_s) or not 0 < timeout_s <= LONGEST_EXECUTION_S:
        raise InputError(f"timeout_s must be a number above 0 and at most {LONGEST_EXECUTION_S:g}.")
    return Order(
        command=cast("list[str]", command),
        stdin=bytes_of(given, "stdin"),
        env=cast("dict[str, str]", env),
        timeout_s=float(timeout_s),
    )


def executed_to_json(done: Executed) -> dict[str, Any]:
    outputs = {**text_of("stdout", done.stdout), **text_of("stderr", done.stderr)}
    return {"code": done.code, **outputs, "timed_out": done.timed_out, "cut": done.cut}


def probe_to_json(probe: Probe) -> dict[str, Any]:
    return to_builtins(probe)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON.") from None
    if not isinstance(value, dict):
        raise InputError("the body must be a JSON object.")
    return cast("dict[str, Any]", value)


def text_of(name: str, data: bytes) -> dict[str, str]:
    """Return bytes as text if they are text, so that people can read them."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def bytes_of(told: Mapping[str, Any], name: str) -> bytes:
    try:
        if f"{name}_base64" in told:
            return base64.b64decode(told[f"{name}_base64"], validate=True)
        return str(told.get(name, "")).encode("utf-8")
    except (TypeError, ValueError, binascii.Error):
        raise InputError(f"{name} is neither text nor base64.") from None
