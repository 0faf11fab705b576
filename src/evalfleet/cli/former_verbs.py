"""The verbs of other tools for the same work, and the command that does it here. See docs/howto/coming-from.md."""

from __future__ import annotations

from collections.abc import Sequence

# Of `openadapt-evals` and its ancestors, and of WAA's scripts. A verb that only stops machines never leads to one that
# deletes them.
_VM = {
    "create": "pool create NAME --backend azure-vm --workers 1",
    "setup": "pool create NAME --backend azure-vm --benchmark waa",
    "setup-waa": "pool create NAME --backend azure-vm --benchmark waa",
    "prepare-windows": "waa image build",
    "run-waa": "run waa --pool NAME --agent navi --model MODEL",
    "run": "run waa --pool NAME --agent navi --model MODEL",
    "create-pool": "pool create NAME --backend azure-vm --workers N",
    "run-pool": "run waa --pool NAME --agent navi --model MODEL --tasks N",
    "pool-status": "pool status",
    "pool-logs": "pool logs",
    "delete-pool": "pool delete NAME",
    "status": "pool status",
    "monitor": "watch",
    "probe": "pool status --probe",
    "start": "pool start",
    "stop": "pool stop",
    "deallocate": "pool stop",
    "delete": "pool delete NAME",
    "cleanup": "reap",
    "ssh": "pool ssh",
    "exec": "pool exec",
    "vnc": "pool vnc",
    "logs": "pool logs",
    "diag": "pool status --probe",
    "screenshot": "pool screenshot",
    "list-sizes": "sizes",
    "list-skus": "sizes",
    "list-usage": "quota",
    "list": "pool list",
    "show": "pool status",
    "pull-image": "pool prepare",
    "fix-storage": "pool prepare",
    "docker-prune": "pool prepare",
    "reset-windows": "pool prepare",
    "host-exec": "pool exec",
}
_HERE = {
    **{verb: command for verb, command in _VM.items() if verb not in ("run", "status", "logs")},
    "vm-start": "pool start",
    "vm-stop": "pool stop",
    "analyze": "report",
    "view": "serve",
    "viewer": "serve",
    "live": "run waa --agent navi --model MODEL",
    "mock": "run miniwob --agent random",
    "run-azure": "run waa --backend azure-vm --workers N --agent navi --model MODEL",
    "show-result": "report",
    "estimate-cost": "plan waa",
    "history": "status",
}
_POOL = {verb: command for verb, command in _VM.items() if verb not in ("run", "run-waa", "run-pool")} | {
    "run": "run waa --pool NAME --agent navi --model MODEL",
    "wait": "pool settle",
    "cleanup": "reap",
    "resume": "pool start",
    "pause": "pool stop",
}
_TABLES = {"": _HERE, "vm": _VM, "pool": _POOL, "azure": _VM}


def hint(group: str, words: Sequence[str]) -> str | None:
    """What to type instead, as a sentence; None: the words are not those of another tool.

    Args:
        group: where they were typed: "" for the program itself, else "pool".
        words: the unknown verb, and what followed it.
    """
    verb, *rest = (word.replace("_", "-").removesuffix(".py") for word in words)
    if not group and verb in ("vm", "azure"):
        named = next((word for word in rest if not word.startswith("-")), "")
        found = _TABLES[verb].get(named, "pool")
        return f"`evalfleet {found}` does that here{_see()}"
    found = _TABLES.get(group, {}).get(verb)
    return None if found is None else f"`evalfleet {found}` does that here{_see()}"


def _see() -> str:
    return "; docs/howto/coming-from.md has all of them."
