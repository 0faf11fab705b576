"""Validates the spec of a launch."""

from __future__ import annotations

import os
import re
import sys

from ..gpu.devices import GIVEN
from ..jsontext import as_list, as_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")  # of attempts: also a folder's name
VARIABLE = re.compile(r"[^=\0]+")
SHA256 = re.compile(r"[0-9a-f]{64}")
UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,95}")  # of GPUs: also a file's name
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_GRACE_S = 5.0
FOREVER_S = 10 * 365 * 86400.0
PROGRAM = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)  # the archive that this module is in


class RequestRefused(Exception):
    """A refused request. Becomes the error answer."""

    def __init__(self, error: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.fields = fields


def bad(message: str) -> RequestRefused:
    return RequestRefused("bad_request", message)


def text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise bad("%s must be text" % name)
    return value


def number(message: dict[str, Any], name: str, default: float | None = None) -> float | None:
    """A positive number of seconds, or the default if it is absent or null."""
    value = message.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise bad("%s must be a number above 0" % name)
    return min(float(value), FOREVER_S)


def limit(message: dict[str, Any], name: str) -> float:
    """Any number; infinite if it is absent or null."""
    value = message.get(name)
    if value is None:
        return float("inf")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise bad("%s must be a number" % name)
    return float(value)


def amount(message: dict[str, Any], name: str) -> float | None:
    """Dollars, 0 or more; None if it is absent or null."""
    value = message.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise bad("%s must be a number, 0 or more" % name)
    return float(value)


def whole(message: dict[str, Any], name: str, default: int = 0) -> int:
    value = message.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad("%s must be a whole number, 0 or more" % name)
    return value


def attempt_name(message: dict[str, Any]) -> str:
    name = text(message, "attempt")
    if not NAME.fullmatch(name):
        raise bad("attempt must be 1 to 128 of A-Z a-z 0-9 . _ - and not start with a dot")
    return name


def variables(message: dict[str, Any], name: str) -> dict[str, str]:
    """Environment variables: text to text, with valid names."""
    if message.get(name) is None:
        return {}
    values = as_object(message[name])
    if values is None:
        raise bad("%s must map names to text" % name)
    for key, value in values.items():
        if not VARIABLE.fullmatch(key):
            raise bad("%s: %r is not a valid variable name" % (name, key))
        if not isinstance(value, str) or "\0" in value or not _encodable(value):
            raise bad("%s: %s must be text without NUL" % (name, key))
    return values


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _command(message: dict[str, Any]) -> list[str]:
    command = as_list(message.get("command"))
    if not command or not command[0]:
        raise bad("spec.command must be a list with at least the program")
    if not all(isinstance(word, str) and "\0" not in word and _encodable(word) for word in command):
        raise bad("spec.command must be a list of text without NUL")
    return command


def _files(message: dict[str, Any]) -> dict[str, str]:
    if message.get("files") is None:
        return {}
    files = as_object(message["files"])
    if files is None:
        raise bad("spec.files must map relative paths to SHA-256 sums")
    for path, digest in files.items():
        parts = path.split("/")
        if not parts[-1] or any(part in ("", ".", "..") for part in parts) or "\0" in path or not _encodable(path):
            raise bad("spec.files: %r is not a plain relative path" % path)
        if not isinstance(digest, str) or not SHA256.fullmatch(digest):
            raise bad("spec.files: %r needs a SHA-256 sum" % path)
    return files


def _gpus(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The leased GPUs as `{uuid, index, memory_mb}`; memory None means the whole GPU."""
    rows = as_list(message.get("gpus") or [])
    if rows is None:
        raise bad("spec.gpus must be a list of objects")
    found: list[dict[str, Any]] = []
    for row in rows:
        fields = as_object(row) or {}
        uuid = fields.get("uuid")
        if not isinstance(uuid, str) or not UUID.fullmatch(uuid):
            raise bad("spec.gpus: each needs its uuid, of letters, digits, - and _")
        if any(uuid == other["uuid"] for other in found):
            raise bad("spec.gpus: %s is named twice" % uuid)
        memory = None if fields.get("memory_mb") is None else whole(fields, "memory_mb")
        index = None if fields.get("index") is None else whole(fields, "index")
        found.append({"uuid": uuid, "index": index, "memory_mb": memory or None})
    return found


class AttemptSpec:
    """The spec of one launch. ``fields`` is the original dictionary."""

    def __init__(self, value: Any) -> None:
        fields = as_object(value)
        if fields is None:
            raise bad("spec must be an object")
        self.fields = fields
        self.command = _command(fields)
        self.env = variables(fields, "env")
        self.host_env = fields.get("host_env") is True
        self.files = _files(fields)
        self.number = whole(fields, "number", 1)
        timeout_s = number(fields, "timeout_s")
        if timeout_s is None:
            raise bad("spec.timeout_s is missing")
        self.timeout_s: float = timeout_s
        self.stall_s = number(fields, "stall_s")
        self.start_timeout_s = number(fields, "start_timeout_s")
        self.max_cost_usd = amount(fields, "max_cost_usd")
        self.price_usd_per_hour = amount(fields, "price_usd_per_hour") or 0.0
        no_grace = fields.get("grace_s") == 0
        self.grace_s: float = 0.0 if no_grace else (number(fields, "grace_s") or DEFAULT_GRACE_S)
        self.output_is_progress = fields.get("progress", "output") != "events"
        if fields.get("progress", "output") not in ("output", "events"):
            raise bad('spec.progress must be "output" or "events"')
        cwd = fields.get("cwd")
        if cwd is not None and (not isinstance(cwd, str) or not cwd or "\0" in cwd or not _encodable(cwd)):
            raise bad("spec.cwd must be a path or null")
        self.cwd: str | None = cwd
        self.gpus = _gpus(fields)
        self.gpu_env = fields.get("gpu_env") or "index"
        if self.gpu_env not in ("index", "uuid"):
            raise bad('spec.gpu_env must be "index" or "uuid"')
        self.around = fields.get("around")
        if self.around not in (None, "server"):
            raise bad('spec.around must be "server" or null')

    def words(self) -> list[str]:
        """The command line to execute: the command, or the program around it."""
        if self.around is None:
            return self.command
        return [sys.executable, "-I", "-S", PROGRAM, "around", "--", *self.command]

    def environment(self, folder: str, name: str, secrets: dict[str, str]) -> dict[str, str]:
        """The environment of an attempt with that name and folder."""
        env = {"PATH": DEFAULT_PATH, "PYTHONUNBUFFERED": "1"}
        if self.host_env:
            env.update(os.environ)  # the runner kept only a few plain variables of its own
            if GIVEN in env:  # a task that leases none still sees no GPUs of others
                env["CUDA_VISIBLE_DEVICES"] = env.pop(GIVEN)
        env.update(self.env)
        env.update(secrets)
        env.update(
            EVALFLEET_TASK=folder + "/task.json",
            EVALFLEET_RESULT=folder + "/result.json",
            EVALFLEET_EVENTS=folder + "/events.jsonl",
            EVALFLEET_ARTIFACTS=folder + "/artifacts",
            EVALFLEET_ATTEMPT=name,
            EVALFLEET_ATTEMPT_NUMBER=str(self.number),
        )
        return env

    def task(self) -> dict[str, Any]:
        """The content of the task's JSON file."""
        return {name: self.fields.get(name) for name in ("key", "domain", "number", "payload")}
