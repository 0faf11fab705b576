"""Docker's command line, read: which command, its options, and the words that follow. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

# Options that take a value, by command; all others are switches.
_VALUED: dict[str, str] = {
    "run": "--name --env -e --env-file --volume -v --mount --publish -p --device --cap-add --cap-drop --platform --network "
    "--stop-timeout --entrypoint --workdir -w --restart --memory -m --shm-size --ulimit --user -u --label -l "
    "--hostname -h --security-opt --add-host --cpus --pull --log-driver --log-opt",
    "exec": "--workdir -w --env -e --env-file --user -u",
    "login": "--username -u --password -p",
    "inspect": "--format -f --type",
    "image inspect": "--format -f",
    "version": "--format -f",
    "info": "--format -f",
    "ps": "--format --filter -f --last -n",
    "images": "--format --filter -f",
    "pull": "--platform",
    "stop": "--time -t --signal -s",
    "restart": "--time -t --signal -s",
    "kill": "--signal -s",
    "logs": "--tail -n --since --until",
    "system prune": "--filter",
    "system df": "--format",
    "container prune": "--filter",
    "image prune": "--filter",
}
_LONG = {
    "-a": "--all",
    "-d": "--detach",
    "-e": "--env",
    "-f": "--format",
    "-h": "--hostname",
    "-i": "--interactive",
    "-l": "--label",
    "-m": "--memory",
    "-n": "--tail",
    "-p": "--publish",
    "-q": "--quiet",
    "-s": "--signal",
    "-t": "--time",
    "-u": "--user",
    "-v": "--volume",
    "-w": "--workdir",
}
_OWN = {"ps": {"-f": "--filter"}, "images": {"-f": "--filter"}, "login": {"-u": "--username", "-p": "--password"}}
_SWITCH_F = {"rm", "rmi", "system prune", "container prune", "image prune", "logs"}  # whose -f takes no value
_SAME = {"container ls": "ps", "container ps": "ps", "image ls": "images", "image pull": "pull", "image rm": "rmi"}
_OF_CONTAINERS = {"inspect", "start", "stop", "restart", "run", "exec", "rm", "kill", "logs"}
_BEFORE = {"--config", "--context", "--host", "-H", "--log-level", "-l"}  # valued options that stand before the command
_GROUPS = {"image", "container", "system", "volume", "network"}
_ENDS_OPTIONS = {"run", "exec"}  # what follows their first word is another program's
_PLACE = re.compile(r"\{\{\s*(json\s+|index\s+|join\s+)?\.([\w.]*)\s*(?:\"([^\"]*)\"\s*)?\}\}")


class Asked(Struct, frozen=True, kw_only=True):
    """One call of `docker`."""

    command: str  # such as "run", "image inspect"
    options: Mapping[str, Sequence[str]]  # by their long names; switches have no values
    words: Sequence[str]

    def option(self, name: str) -> str | None:
        values = self.options.get(name) or ()
        return values[-1] if values else None

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what `--env` names; without a value it is the caller's own."""
        found: dict[str, str] = {}
        for word in self.options.get("--env", ()):
            name, given, value = word.partition("=")
            found[name] = value if given else environ.get(name, "")
        return found

    def published(self) -> dict[str, int]:
        """Return the ports that `--publish [ADDRESS:][PORT:]INNER` names: the container's, and the machine's."""
        found = [word.removesuffix("/tcp").split(":") for word in self.options.get("--publish", ())]
        return {f"{parts[-1]}/tcp": int(parts[-2 if len(parts) > 1 else -1]) for parts in found}


def read(args: Sequence[str]) -> Asked:
    """Read the words after `docker`."""
    rest = list(args)
    options: dict[str, list[str]] = {}
    while rest and rest[0].startswith("-"):
        before = rest.pop(0)
        if before in _BEFORE and rest:
            options[before] = [rest.pop(0)]
    command = rest.pop(0) if rest else ""
    if command in _GROUPS and rest:
        command = f"{command} {rest.pop(0)}"
        command = _SAME.get(command, command)
        if command.startswith("container ") and command.split()[1] in _OF_CONTAINERS:
            command = command.removeprefix("container ")
    valued = set(_VALUED.get(command, "").split())
    words: list[str] = []
    while rest and not (words and command in _ENDS_OPTIONS):
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-"):
            words.append(word)
            continue
        name, given, value = word.partition("=")
        values = options.setdefault(_long(command, name), [])
        if given:
            values.append(value)
        elif name in valued and rest:
            values.append(rest.pop(0))
    return Asked(command=command, options=options, words=words + rest)


def _long(command: str, name: str) -> str:
    if name == "-f" and command in _SWITCH_F:
        return "--force"
    if name in ("-it", "-ti"):
        return "--interactive"
    return _OWN.get(command, {}).get(name) or _LONG.get(name, name)


def shown(template: str | None, value: Mapping[str, Any]) -> str:
    """Fill a `--format`; without one, show JSON as `inspect` does."""
    if template is None:
        return json.dumps([value], indent=4)

    def fill(found: re.Match[str]) -> str:
        inner: Any = value
        for name in filter(None, found[2].split(".")):
            inner = cast("Mapping[str, Any]", inner).get(name) if isinstance(inner, dict) else None
        if found[1] and found[1].startswith("join"):
            return (found[3] or "").encode().decode("unicode_escape").join(map(str, cast("list[Any]", inner or [])))
        if found[3] is not None:
            return str(cast("Mapping[str, Any]", inner or {}).get(found[3], ""))
        if found[1]:
            return json.dumps(inner)
        return str(inner).lower() if isinstance(inner, bool) else str("<no value>" if inner is None else inner)

    return _PLACE.sub(fill, template)
