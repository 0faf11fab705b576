"""Whether WAA's run.py knows the flags that it is given: it ignores others without a word, and scores as if they were not there.

Its text is read, not run: starting it loads the agent's models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck
from evalfleet.validation import suggestion

_DEFINED = re.compile(r"""add_argument\(\s*["'](--[A-Za-z0-9][\w-]*)["']""")


def flags_check(docker: Docker, settings: WaaSettings, container: str) -> ReadinessCheck:
    """Compare `[waa] flags` with those that run.py in the container defines."""
    path = f"{settings.client}/run.py"
    try:
        known = _DEFINED.findall(docker.read(container, path))
    except DockerError as error:
        remedy = f"[waa] client must be the folder of run.py in {settings.image}"
        return ReadinessCheck(name="flags", of=container, holds=False, seen=str(error), remedy=remedy)
    if not known:
        return ReadinessCheck(
            name="flags", of=container, holds=True, seen=f"not checked: {path} defines none in its text"
        )
    wrong = unknown(settings.flags, known)
    if wrong is None:
        return ReadinessCheck(name="flags", of=container, holds=True, seen="run.py knows them")
    seen = f"run.py does not know {wrong}, and would ignore it{suggestion(wrong, known)}"
    return ReadinessCheck(name="flags", of=container, holds=False, seen=seen, remedy="correct [waa] flags")


def unknown(flags: Sequence[str], known: Sequence[str]) -> str | None:
    """The first flag that argparse would not take for one of those that are known. It takes abbreviations."""
    names = [word.partition("=")[0] for word in flags if word.startswith("--")]
    return next((name for name in names if not any(one.startswith(name) for one in known)), None)
