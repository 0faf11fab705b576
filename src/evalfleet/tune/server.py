"""The server of a trial: it is started, probed, watched and stopped around the command.

Its placeholders are filled in for every trial; `evalfleet.runner.server.program` then runs it on the host. `{NAME}` stands for the
value of a parameter, `{flags}` as a whole word for the parameters as flags, `{port}` for a free port, which only the host knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.model import JsonObject
from evalfleet.tune.expression import Value
from evalfleet.tune.space import Space
from evalfleet.validation import quoted, seconds

PORT = "{port}"
FLAGS = "{flags}"
SLACK_S = 30.0  # the runner's own limit comes after the program's, which can say more
_NAME = re.compile(r"\{(\w+)\}")
_OWN = frozenset({"port", "flags", "python"})


class ServerRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`[trial] server = {...}` as it is written."""

    command: list[str]
    ready: str
    ready_timeout: str | float = "10m"
    stop_timeout: str | float = "10s"
    env: dict[str, str] = {}
    flags: list[str] | None = None


class ServerSpec(Struct, frozen=True, kw_only=True):
    """How the server of a trial is run; the placeholders of parameters are not filled in yet."""

    command: tuple[str, ...]
    ready: str
    ready_timeout_s: float
    stop_timeout_s: float
    env: Mapping[str, str]
    flags: tuple[str, ...]  # which parameters {flags} stands for, in order

    def words(self, words: Iterable[str], point: Mapping[str, Value]) -> tuple[str, ...]:
        """A command line with the point's values in it. Raises InputError where one is missing."""
        found: list[str] = []
        for word in words:
            found += (
                flag_words({name: point[name] for name in self.flags if name in point})
                if word == FLAGS
                else [filled(word, point)]
            )
        return tuple(found)

    def variables(self, env: Mapping[str, str], point: Mapping[str, Value]) -> dict[str, str]:
        return {name: filled(value, point) for name, value in env.items()}

    def settings(self, env: Mapping[str, str], point: Mapping[str, Value]) -> JsonObject:
        """The settings that the host needs. `env` is the environment of the command."""
        return {
            "command": list(self.words(self.command, point)),
            "ready": filled(self.ready, point),
            "ready_timeout_s": self.ready_timeout_s,
            "stop_timeout_s": self.stop_timeout_s,
            "env": self.variables(self.env, point),
            "port_in": [name for name, value in env.items() if PORT in value],
        }


def server_of(row: ServerRow, space: Space, command: Sequence[str], env: Mapping[str, str]) -> ServerSpec:
    """Read it, and check it against the parameters and the trial's own command. Raises InputError."""
    if not row.command or not row.command[0].strip():
        raise InputError(
            'trial.server.command: is empty; write the program and its arguments, such as ["vllm", "serve"].'
        )
    _check_ready(row.ready)
    flags = tuple(row.flags) if row.flags is not None else space.names
    if unknown := [name for name in flags if name not in space.names]:
        raise InputError(
            f"trial.server.flags: {quoted(unknown[0])} is not a parameter; choose from {', '.join(space.names)}."
        )
    if taken := [name for name in space.names if name in _OWN]:
        raise InputError(
            f"parameters.{taken[0]}: {{{taken[0]}}} is reserved in a study with a server; rename the parameter."
        )
    for place, texts in {
        "server.command": row.command,
        "server.ready": [row.ready],
        "server.env": row.env.values(),
        "command": command,
        "env": env.values(),
    }.items():
        _check_places(f"trial.{place}", texts, space)
    return ServerSpec(
        command=tuple(row.command),
        ready=row.ready,
        ready_timeout_s=seconds("trial.server.ready_timeout", row.ready_timeout),
        stop_timeout_s=seconds("trial.server.stop_timeout", row.stop_timeout),
        env=row.env,
        flags=flags,
    )


def flag_words(parameters: Mapping[str, Value]) -> list[str]:
    """Parameters as flags: true is a bare flag, false is left out."""
    words: list[str] = []
    for name, value in parameters.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words


def filled(text: str, point: Mapping[str, Value]) -> str:
    """The text with the point's values in the places of its parameters; any other brace stays as it is."""
    return _NAME.sub(lambda found: _shown(point[found[1]]) if found[1] in point else found[0], text)


def _shown(value: Value) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _check_ready(ready: str) -> None:
    try:
        parts = urlsplit(ready.replace(PORT, "1"))
        good = parts.scheme == "http" and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise InputError(
            f"trial.server.ready: {quoted(ready)} is not an address; write http://127.0.0.1:{{port}}/health or similar; "
            "a 2xx response means that the server is ready."
        )


def _check_places(where: str, texts: Iterable[str], space: Space) -> None:
    conditional = {parameter.name for parameter in space.parameters if parameter.when is not None}
    for text in texts:
        if FLAGS in text and (text != FLAGS or where.endswith((".env", ".ready"))):
            raise InputError(f"{where}: {{flags}} expands to several words; write it as an argument of its own.")
        if missing := sorted(conditional.intersection(_NAME.findall(text))):
            raise InputError(
                f"{where}: {{{missing[0]}}} has no value where its `when` does not hold; use {{flags}}, which leaves it out."
            )


def check_baseline(spec: ServerSpec, texts: Iterable[str], space: Space, baseline: Mapping[str, Value]) -> None:
    """Raises InputError where a text needs a parameter that the baseline does not have."""
    for text in [*texts, *spec.command, spec.ready, *spec.env.values()]:
        for name in _NAME.findall(text):
            if name in space.names and name not in baseline:
                raise InputError(
                    f"study.baseline: has no {name}, which {quoted(text)} needs; add it, or use {{flags}}, which leaves it out."
                )
