"""One task, and the run's settings, as the task file's contract writes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from evalfleet.model import Distribution, Policy, Requests, TaskSpec
from evalfleet.validation import checked_priority, explain, quoted, seconds, suggestion

_LARGEST_COUNT = 2**31 - 1
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = "EVALFLEET_"
_NO_REQUESTS = Requests()
GPU_ENVS = ("index", "uuid")

Duration = str | float | None


class Problem(Exception):
    """What is wrong with one task or with the run's settings: "field: what, and what to do", without a full stop."""


class Doubled(Problem):
    """An object has two members of one name."""


class _RequestsRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    gpus: int = 0
    memory_mb: int = 0
    gpu_memory_mb: int = 0


class _TaskRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    command: list[str] | None = None  # or the run's
    domain: str | None = None
    env: dict[str, str] | None = None
    secrets: list[str] | None = None
    payload: Any = None
    timeout: Duration = None
    stall: Duration = None
    start_timeout: Duration = None
    requests: _RequestsRow | None = None
    max_cost_usd: float | None = None
    gpu_env: str | None = None


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What `[run]` says for all of its tasks."""

    command: list[str] | None = None
    env: dict[str, str] = {}
    secrets: list[str] = []
    payload: Any = None


class _RunRow(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    command: list[str] | None = None
    env: dict[str, str] | None = None
    secrets: list[str] | None = None
    payload: Any = None
    attempts: int | None = None
    timeout: Duration = None
    stall: Duration = None
    start_timeout: Duration = None
    budget_usd: float | None = None
    max_cost_usd: float | None = None
    accept: float | None = None
    exit_is_verdict: bool | None = None
    timeout_is_verdict: bool | None = None
    result: str | None = None
    progress: str | None = None
    files: list[str] | None = None
    breaker: bool | None = None
    max_lost: int | None = None
    retry_base: Duration = None
    retry_cap: Duration = None
    workers: int | None = None
    priority: int | None = None
    distribution: str | None = None
    gpus: list[int] | None = None
    gpu_pack: bool | None = None
    speculate: bool | None = None


RUN_KEYS = frozenset(_RunRow.__struct_fields__)
NO_DEFAULTS = Defaults()

_DURATION_HINT = 'expected a duration such as "90s", "15m" or "1h30m"'
_HINTS = {
    "command": 'expected a list of words in quotes, such as ["python3", "agent.py"]; '
    'for a shell line write ["sh", "-c", "…"]',
    "env": "expected a table of texts; put the values in quotes",
    "secrets": 'expected a list of names of environment variables, such as ["OPENAI_API_KEY"]',
    "files": 'expected a list of paths in quotes, such as ["agent.py"]',
    "gpus": "expected a list of the places of GPUs on their host, such as [0, 1]",
    **dict.fromkeys(("timeout", "stall", "start_timeout", "retry_base", "retry_cap"), _DURATION_HINT),
}
_decoder = msgspec.json.Decoder(_TaskRow)


def decode_line(line: bytes, given: Defaults = NO_DEFAULTS) -> TaskSpec:
    """Read one task from its JSON. `given`: what the run says for all of its tasks.

    Raises:
        Problem: it is JSON, and not a task.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not usable JSON.
    """
    try:
        row = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise Problem(_explain_task(error, msgspec.json.decode(line))) from None
    return _spec(row, given)


def decode_line_closely(line: bytes, given: Defaults = NO_DEFAULTS) -> TaskSpec:
    """As `decode_line`; refuses a line that says one thing twice, of which parsers take the last without a word."""
    refuse_doubles(line, msgspec.json.decode(line))
    return decode_line(line, given)


def refuse_doubles(line: bytes, content: Any) -> None:
    """Raise Doubled where an object of the line has a member twice. `content` is the line as any parser reads it."""
    # A member that was dropped is missing when it is written again; looking closely at every line would take ten times as long.
    if len(line.strip().replace(b" ", b"")) != len(msgspec.json.encode(content).replace(b" ", b"")):
        with suppress(ValueError):  # a number of thousands of digits, which is no double
            json.loads(line, object_pairs_hook=single)


def single(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose members all have names of their own. Raises Doubled."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        double = next(name for name in names if names.count(name) > 1)
        raise Doubled(f"{quoted(double)} stands twice in one object; leave one of them out")
    return found


def from_mapping(task: Any, given: Defaults = NO_DEFAULTS) -> TaskSpec:
    """Check one task that is a mapping already. Raises Problem."""
    plain = _as_json(task)
    try:
        row = msgspec.convert(plain, _TaskRow)
    except msgspec.ValidationError as error:
        raise Problem(_explain_task(error, plain)) from None
    return _spec(row, given)


def defaults(run: Any) -> Defaults:
    """What a run's settings, which `policy` has checked, say for all of its tasks. Raises Problem."""
    plain = cast("dict[str, Any]", _as_json(run) if run else {})
    found = {name: plain[name] for name in Defaults.__struct_fields__ if plain.get(name) is not None}
    return msgspec.convert(found, Defaults) if found else NO_DEFAULTS


def policy(run: Any) -> tuple[str | None, Policy]:
    """Check the run's settings and return its name, where it has one, and its policy. Raises Problem."""
    try:
        row = msgspec.convert({} if run is None else _as_json(run), _RunRow)
    except msgspec.ValidationError as error:
        raise Problem(explain(error, _RunRow, _HINTS)) from None
    if row.name is not None:
        _require_text("name", row.name)
    wanted: dict[str, Any] = {
        "attempts": _count("attempts", row.attempts, least=1),
        "max_lost": _count("max_lost", row.max_lost),
        "workers": _count("workers", row.workers, least=1),
        "priority": checked_priority(row.priority, Problem),
        "budget_usd": _amount("budget_usd", row.budget_usd),
        "max_cost_usd": _amount("max_cost_usd", row.max_cost_usd),
        "accept": _amount("accept", row.accept, most=1.0),
        "exit_is_verdict": row.exit_is_verdict,
        "timeout_is_verdict": row.timeout_is_verdict,
        "breaker": row.breaker,
        "progress": _choice("progress", row.progress, ("output", "events")),
        "distribution": _choice("distribution", row.distribution, tuple(Distribution)),
        "files": None if row.files is None else tuple(_require_text("files", file) for file in row.files),
        "gpus": None if row.gpus is None else gpu_places("gpus", row.gpus),
        "gpu_pack": row.gpu_pack,
        "speculate": row.speculate,
    }
    for name in ("timeout", "stall", "start_timeout", "retry_base", "retry_cap"):
        wanted[f"{name}_s"] = seconds(name, getattr(row, name), Problem)
    if wanted["distribution"] is not None:
        wanted["distribution"] = Distribution(wanted["distribution"])
    if _choice("result", row.result, ("optional", "required")) is not None:
        wanted["result_required"] = row.result == "required"
    return row.name, Policy(**{name: value for name, value in wanted.items() if value is not None})


def _explain_task(error: msgspec.ValidationError, plain: Any) -> str:
    if not isinstance(plain, dict):
        list_advice = "; JSON Lines have one object per line, not one list (jq -c '.[]' makes them)"
        return f"expected one task, an object with key and command{list_advice if isinstance(plain, list) else ''}"
    if "run" in plain and "key" not in plain:
        return 'the run\'s settings ({"run": …}) must be the first line'
    said = explain(error, _TaskRow, _HINTS)
    if said.startswith("env["):
        env = cast("dict[str, dict[str, Any]]", plain)["env"]
        names = [name for name, value in env.items() if not isinstance(value, str)]
        return f"env.{quoted(names[0])[1:-1]}: the value must be text; put it in quotes" if names else said
    return said


def _with_defaults(row: _TaskRow, given: Defaults) -> _TaskRow:
    """The task's own words go before; variables, secrets and members of the payload are joined."""
    row.command = given.command if row.command is None else row.command
    row.env = {**given.env, **(row.env or {})}
    row.secrets = [*given.secrets, *(row.secrets or ())]
    if row.payload is None:
        row.payload = given.payload
    elif isinstance(row.payload, dict) and isinstance(given.payload, dict):
        row.payload = {**cast("dict[str, Any]", given.payload), **cast("dict[str, Any]", row.payload)}
    return row


def _spec(row: _TaskRow, given: Defaults) -> TaskSpec:
    if given is not NO_DEFAULTS:
        row = _with_defaults(row, given)
    key, command = row.key, row.command
    if command is None:
        raise Problem('"command" is missing')
    if not key or "\0" in key:
        _require_text("key", key)
    if not command or not command[0].strip() or "\0" in "".join(command):
        _refuse_command(command)
    if row.domain is not None:
        _require_text("domain", row.domain)
    env = _checked_env(row.env) if row.env else {}
    return TaskSpec(
        key=key,
        domain=row.domain or key.rpartition("_")[0] or key,
        command=tuple(command),
        env=env,
        secrets=_checked_secrets(row.secrets, env) if row.secrets else (),
        payload=row.payload,
        timeout_s=seconds("timeout", row.timeout, Problem),
        stall_s=seconds("stall", row.stall, Problem),
        start_timeout_s=seconds("start_timeout", row.start_timeout, Problem),
        requests=_NO_REQUESTS if row.requests is None else _checked_requests(row.requests),
        max_cost_usd=_amount("max_cost_usd", row.max_cost_usd),
        gpu_env="index" if row.gpu_env is None else _choice("gpu_env", row.gpu_env, GPU_ENVS) or "index",
    )


def with_variables(spec: TaskSpec, env: Mapping[str, str], secrets: Sequence[str]) -> TaskSpec:
    """The task with further variables, which go before its own. Raises Problem."""
    if not env and not secrets:
        return spec
    clash = next((name for name in env if name in spec.secrets), None)
    if clash is not None:
        raise Problem(f"env: {quoted(clash)} is a secret of task {quoted(spec.key)}, and would be stored")
    both = {**spec.env, **_checked_env(dict(env))}
    return replace(spec, env=both, secrets=_checked_secrets([*spec.secrets, *secrets], both))


def _refuse_command(command: list[str]) -> None:
    if not command:
        raise Problem('command: is empty; write the program and its arguments, such as ["python3", "agent.py"]')
    if not command[0].strip():
        raise Problem("command: its first word, the program to start, is empty")
    raise Problem("command: has a NUL byte, which no program can be given")


def _checked_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise Problem(
                f"env: {quoted(name)} cannot be a variable's name; a name is not empty and has no '=' or NUL byte"
            )
        if name.startswith(_RESERVED):
            raise Problem(f"env: {quoted(name)} is reserved; names that begin with {_RESERVED} are set by evalfleet")
        if "\0" in value:
            raise Problem(f"env.{quoted(name)[1:-1]}: the value has a NUL byte, which no program can be given")
    return env


def _checked_secrets(secrets: list[str], env: dict[str, str]) -> tuple[str, ...]:
    for name in secrets:
        if not _SECRET_NAME.fullmatch(name):
            # Not shown: somebody may have written the secret itself.
            raise Problem(
                "secrets: one of them is not the name of an environment variable (letters, digits and '_'); "
                "list names, never values"
            )
        if name.startswith(_RESERVED):
            raise Problem(
                f"secrets: {quoted(name)} is reserved; names that begin with {_RESERVED} are set by evalfleet"
            )
        if name in env:
            raise Problem(f"secrets: {quoted(name)} is also in env; leave it in one of them")
    return tuple(dict.fromkeys(secrets))


def _checked_requests(row: _RequestsRow) -> Requests:
    for name in ("gpus", "memory_mb", "gpu_memory_mb"):
        _count(f"requests.{name}", getattr(row, name))
    if row.gpu_memory_mb and not row.gpus:
        raise Problem(
            "requests.gpu_memory_mb: is memory of each GPU, and no GPU is asked for; write gpus = 1 besides, or "
            "memory_mb for the memory of the host"
        )
    return Requests(gpus=row.gpus, memory_mb=row.memory_mb, gpu_memory_mb=row.gpu_memory_mb)


def gpu_places(name: str, places: Sequence[int]) -> tuple[int, ...]:
    """Which GPUs of a host, by index. Raises Problem."""
    if not places:
        raise Problem(f"{name}: is empty; name at least one, such as [0], or leave it out for all of them")
    for place in places:
        _count(name, place)
    return tuple(sorted(set(places)))


def _require_text(name: str, text: str) -> str:
    if not text.strip():
        raise Problem(f"{name}: is empty; write a text" if not text else f"{name}: is blank; write a text")
    if "\0" in text:
        raise Problem(f"{name}: has a NUL byte")
    return text


def _count(name: str, value: int | None, least: int = 0) -> int | None:
    if value is not None and not least <= value <= _LARGEST_COUNT:
        raise Problem(
            f"{name}: {quoted(str(value))[1:-1]} is out of range; the least is {least}, the most {_LARGEST_COUNT}"
        )
    return value


def _amount(name: str, value: float | None, most: float = math.inf) -> float | None:
    if value is not None and not (0 <= value <= most and math.isfinite(value)):
        allowed = "0 or more" if most == math.inf else f"from 0 to {most:g}"
        raise Problem(f"{name}: {value:g} is out of range; it must be {allowed}")
    return value


def _choice(name: str, value: str | None, known: tuple[str, ...]) -> str | None:
    if value is not None and value not in known:
        raise Problem(f"{name}: {quoted(value)} is not a choice{suggestion(value, known)}")
    return value


def _as_json(value: Any) -> Any:
    """Turn TOML's dates and a script's tuples into what JSON has, and refuse what it has not. Raises Problem."""
    if not isinstance(value, Mapping):
        return value
    try:
        plain = msgspec.to_builtins(value)
        json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise Problem("has half of a surrogate pair, which is not a character") from None
    except ValueError:
        raise Problem("has inf or nan, or is nested in itself, which JSON cannot hold") from None
    except (TypeError, RecursionError) as error:
        raise Problem(f"cannot be written as JSON: {error}") from None
    return plain
