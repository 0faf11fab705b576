"""Decides whether an attempt may start on a GPU, and whether the GPU is clean afterwards. Pure: rows of a probe in, text out."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    Row = Dict[str, Any]
    Leases = Mapping[str, Optional[int]]  # attempts to the memory that they leased; None: the whole card

SLACK_MB = 64  # around a baseline; a driver does not give back every page
IDLE_MB = 256  # that an idle card may have in use without a process
IDLE_UNSPLIT_MB = 1024  # the same if the driver includes its own memory: an idle H200 shows 615
STEADY_S = 3.0
NO_PIDS: frozenset[int] = frozenset()


def called(row: Row) -> str:
    return "GPU %s (%s)" % (row.get("index"), row["uuid"])


def computing(row: Row) -> list[Row]:
    """Processes that compute on it. Graphics processes do not count."""
    return [process for process in row["processes"] or () if process["kind"] != "graphics"]


def foreign(row: Row, adopted: frozenset[int] = NO_PIDS) -> list[Row]:
    """The processes that do not belong to an attempt of this spool.

    Args:
        adopted: processes that are not visible here and that appeared with our attempts: inside a container, pids may be those of the
            host.
    """
    return [process for process in computing(row) if not process["ours"] and process["pid"] not in adopted]


def unexplained_mb(row: Row, leases: Leases, adopted: frozenset[int] = NO_PIDS) -> int | None:
    """Memory in use that no process and no lease explains; 0 if it is no more than an idle GPU uses. None if unknown."""
    used = row["used_mb"]
    if used is None:
        return None
    if any(memory is None for memory in leases.values()):
        return 0
    processes: list[Row] = row["processes"] or []
    if any(process["memory_mb"] is None for process in processes):
        return None
    theirs = {process["pid"] for process in foreign(row, adopted)}
    explained = sum(process["memory_mb"] for process in processes if process["pid"] in theirs)
    ours = sum(process["memory_mb"] for process in processes if process["pid"] not in theirs)
    left = used - explained - max(ours, sum(memory or 0 for memory in leases.values()))
    return left if left > _idle_mb(row) else 0


def _idle_mb(row: Row) -> int:
    return IDLE_UNSPLIT_MB if row["reserved_mb"] is None else IDLE_MB


def refusal(row: Row, memory_mb: int | None, others: Leases, adopted: frozenset[int] = NO_PIDS) -> str | None:
    """Why an attempt that leased this much of it must not start now; None if it may.

    Args:
        others: the other attempts of this runner on it.
    """
    strangers = foreign(row, adopted)
    if strangers:
        return "%s is taken by %s; wait until they end, or exclude that GPU" % (called(row), named(strangers))
    guests = [process for process in computing(row) if process["ours"] and _is_guest(process, others)]
    if guests:
        text = "%s is taken by %s of an attempt that did not lease it; that attempt must respect CUDA_VISIBLE_DEVICES"
        return text % (called(row), named(guests))
    hidden = unexplained_mb(row, others, adopted)
    if hidden:
        text = "%s has %d MB in use that no process here and no lease explains: a process outside this container or of another user"
        return (text + " may be using it; free that memory, or exclude that GPU") % (called(row), hidden)
    return _too_small(row, memory_mb, others)


def _is_guest(process: Row, others: Leases) -> bool:
    if process["attempt"] is None:
        return not others
    return process["attempt"] not in others


def _too_small(row: Row, memory_mb: int | None, others: Leases) -> str | None:
    total = row["memory_mb"]
    if memory_mb is None or total is None:
        return None
    taken = 0
    for name, leased in others.items():
        held = sum(process["memory_mb"] or 0 for process in computing(row) if process["attempt"] == name)
        taken += max(leased or 0, held)
    drawn = sum(process["memory_mb"] or 0 for process in row["processes"] or () if process["kind"] == "graphics")
    free = total - taken - drawn
    if memory_mb <= free:
        return None
    text = "%s has %d MB left of %d, but %d MB are requested; request less, or wait for the other attempts on it"
    return text % (called(row), max(0, free), total, memory_mb)


def named(processes: list[Row]) -> str:
    """Processes as text for people."""
    words: list[str] = []
    for process in processes[:8]:
        memory = "" if process["memory_mb"] is None else ", %d MB" % process["memory_mb"]
        words.append("process %d (%s%s)" % (process["pid"], process["name"] or "nameless", memory))
    return ", ".join(words) + (" and %d more" % (len(processes) - 8) if len(processes) > 8 else "")


def variables(rows: list[Row], style: str) -> dict[str, str]:
    """The variables by which CUDA finds the GPUs. By default CUDA counts the fastest first, so the order is set too; MIG parts have no
    index in that order."""
    by_index = style == "index" and not any(row["mig"] for row in rows)
    places = [str(row["index"]) if by_index else row["uuid"] for row in rows]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(places)}


def left_behind(row: Row, attempt: str, baseline_mb: int | None, alone: bool, adopted: frozenset[int]) -> str | None:
    """What a dead attempt has left on a GPU; None if it is clean.

    Args:
        baseline_mb: memory used before our first attempt; None if unknown.
        alone: no other attempt of this runner uses it.
    """
    rest = [process for process in computing(row) if process["attempt"] == attempt]
    if rest:
        return "%s is still on it" % named(rest)
    used = row["used_mb"]
    if not alone or used is None or baseline_mb is None:
        return None
    strangers = foreign(row, adopted)
    if any(process["memory_mb"] is None for process in strangers):
        return (
            None  # another process came meanwhile: memory cannot be attributed, and `foreign` keeps other attempts away
        )
    used -= sum(process["memory_mb"] for process in strangers)
    if used <= baseline_mb + SLACK_MB:
        return None
    return "%d MB of its memory are in use, but only %d were before" % (used, baseline_mb)


class StartupMemory:
    """Whether an attempt that starts up has allocated its memory: half of its lease, or an amount that no longer grows."""

    def __init__(self, memory_mb: int | None) -> None:
        self._enough = None if memory_mb is None else max(SLACK_MB, memory_mb // 2)
        self._seen = 0
        self._since = 0.0

    def feed(self, used_mb: int | None, now: float) -> bool:
        if used_mb is None or used_mb < SLACK_MB:
            return False
        if self._enough is not None and used_mb >= self._enough:
            return True
        if abs(used_mb - self._seen) >= SLACK_MB:
            self._seen, self._since = used_mb, now
        return now - self._since >= STEADY_S


def used_by(row: Row, attempt: str, before_mb: int | None) -> int | None:
    """Memory of an attempt: of its processes, or the growth of the GPU's used memory if processes are not reported."""
    own = [process["memory_mb"] for process in computing(row) if process["attempt"] == attempt]
    if own and all(memory is not None for memory in own):
        return sum(own)
    if row["used_mb"] is None or before_mb is None:
        return None
    return max(0, row["used_mb"] - before_mb)
