"""Variables in a task's `env` that look like secrets: their values are stored, and shown to everyone with access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evalfleet.model import TaskSpec

MASK = "[hidden]"
_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)(?:_B64|_BASE64|_JSON)?$",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?:sk-|gh[opsu]_|github_pat_|glpat-|hf_|xox[abprs]-|AKIA|AIza|eyJhbGci)[\w.-]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret, by its name or by how its value begins."""
    return bool(value) and (_NAME.search(name) is not None or _VALUE.match(value) is not None)


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """The variables as they may be shown."""
    return {name: MASK if looks_secret(name, value) else value for name, value in env.items()}


def warning(tasks: Iterable[TaskSpec]) -> str | None:
    """The warning for a submission with such variables; None if it has none."""
    found: dict[str, str] = {}
    for task in tasks:
        for name, value in task.env.items():
            if looks_secret(name, value):
                found.setdefault(name, task.key)
    if not found:
        return None
    name, key = next(iter(found.items()))
    return (
        f"{', '.join(found)} {'looks' if len(found) == 1 else 'look'} like a secret and is set in `env` (for example of task {key!r}): its "
        f"value is stored with the run. Put the name into `secrets` instead, and set {name} where evalfleet runs"
    )
