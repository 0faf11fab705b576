"""Whether tasks of two runs that have one key are the same work, by their payloads.

The payload says what is to be done and measured. Command, variables and secrets are the agent's side, which is what a comparison is
about. Of a benchmark's episode only what the benchmark put there counts, since its payload names the agent, too. What is not known on
one side, as in runs that were imported, is taken for the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from evalfleet.answers.comparison import UnlikeTask
from evalfleet.model import JsonObject

_WORK = ("benchmark", "task", "seed", "definition")  # of an episode
_LIMITS = ("max_steps",)  # what an agent is allowed: told, and no reason to refuse
_IMPORTED = "imported"
_LONGEST = 60


def unlike(common: Iterable[str], a: dict[str, str | None], b: dict[str, str | None]) -> list[UnlikeTask]:
    """The common tasks whose payloads differ: `key`, `differs` (name: values in A and B), `same_work` (only a limit differs)."""
    found: list[UnlikeTask] = []
    for key in common:
        if a.get(key) == b.get(key):
            continue
        differs = differences(_parsed(a.get(key)), _parsed(b.get(key)))
        if differs:
            found.append(UnlikeTask(key=key, differs=differs, same_work=differs.keys() <= set(_LIMITS)))
    return found


def differences(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """What differs between two payloads: by name the values of A and B."""
    if a is None or b is None or a == b:
        return {}
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return {"payload": (_short(a), _short(b))}
    one, two = cast("JsonObject", a), cast("JsonObject", b)
    if isinstance(one.get("benchmark"), str) and isinstance(two.get("benchmark"), str):
        names = [name for name in (*_WORK, *_LIMITS) if one.get(name) is not None and two.get(name) is not None]
    elif _IMPORTED in one or _IMPORTED in two:
        return {}
    else:
        names = list(dict.fromkeys([*one, *two]))
    return {name: (_short(one.get(name)), _short(two.get(name))) for name in names if one.get(name) != two.get(name)}


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _short(value: Any) -> Any:
    """As it is, if that is short; else its beginning as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
