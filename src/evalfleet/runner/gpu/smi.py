"""nvidia-smi: the second way to the GPUs, where its library cannot be loaded."""

from __future__ import annotations

import os
import re
import subprocess

from .nvml import MIG_PLACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "nvidia-smi"
ANSWER_S = 8.0
# A name comes last: it alone may have a comma.
FIELDS = ("index", "uuid", "pci.bus_id", "memory.total", "memory.used", "utilization.gpu")
NEWER = (
    "memory.reserved",
    "mig.mode.current",
)  # unknown to drivers of some years ago, which then refuse the whole question
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
LEVELS = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CARD = re.compile(r"GPU \d+: .*\(UUID: (?P<uuid>[^)]+)\)")
PART = re.compile(r"\s+MIG (?P<name>.+?)\s+Device\s+(?P<place>\d+): \(UUID: (?P<uuid>[^)]+)\)")


def whole(text: str) -> int | None:
    """A number; None for `[N/A]`, `N/A`, `[Not Supported]` and whatever else stands where one is not known."""
    text = text.strip()
    return int(text) if text.isdigit() else None


def words(text: str) -> str | None:
    text = text.strip()
    return None if text in ("", "N/A") or text.startswith("[") else text


class Smi:
    """The tool, once it has answered. Raises OSError where it is missing, or finds no driver."""

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._fields = FIELDS + NEWER
        try:
            self._cards()
        except OSError:
            self._fields = FIELDS
            self._cards()
        self._levels: dict[str, dict[str, int]] = {}
        self._linked: list[str] = []

    def rows(self) -> list[dict[str, Any]]:
        """As `Nvml.rows`. Of a part that MIG made only its name is known.

        Raises:
            OSError: it does not answer any more.
        """
        cards = self._cards()
        processes = self._processes()
        for card in cards:
            card["processes"] = None if processes is None else processes.get(card["uuid"], [])
        parts = parts_of(self._run("-L")) if any(card["mig"] for card in cards) else {}
        uuids = [card["uuid"] for card in cards if not card["mig"]]
        if uuids != self._linked:
            self._linked, self._levels = uuids, self._links(cards)
        rows: list[dict[str, Any]] = []
        for card in cards:
            if card["mig"]:
                rows.extend(dict(card, **_part(card, part), links={}) for part in parts.get(card["uuid"], ()))
            else:
                rows.append(dict(card, links=self._levels.get(card["uuid"], {})))
        return rows

    def _cards(self) -> list[dict[str, Any]]:
        query = "--query-gpu=" + ",".join((*self._fields, "name"))
        return cards_of(self._run(query, "--format=csv,noheader,nounits"), self._fields)

    def _processes(self) -> dict[str, list[dict[str, Any]]] | None:
        try:
            query = "--query-compute-apps=" + ",".join(PROCESS_FIELDS)
            return processes_of(self._run(query, "--format=csv,noheader,nounits"))
        except OSError:
            return None

    def _links(self, cards: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
        if len(cards) < 2:
            return {}
        try:
            return links_of(self._run("topo", "-m"), {card["index"]: card["uuid"] for card in cards if not card["mig"]})
        except OSError:
            return {}

    def _run(self, *arguments: str) -> str:
        """Raises OSError where it is missing, fails or takes too long."""
        try:
            done = subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_S,
                env=dict(os.environ, LC_ALL="C"),
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise OSError("%s: %s" % (self._program, error)) from None
        return done.stdout.decode("utf-8", "replace")


def cards_of(text: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    """From comma-separated lines with those fields and the name."""
    cards: list[dict[str, Any]] = []
    for line in text.splitlines():
        found = dict(zip((*fields, "name"), line.split(",", len(fields))))
        index, uuid = whole(found.get("index", "")), words(found.get("uuid", ""))
        if index is None or uuid is None:
            continue
        mode = words(found.get("mig.mode.current", ""))
        card: dict[str, Any] = {"index": index, "uuid": uuid, "name": words(found.get("name", ""))}
        card.update(
            pci=words(found.get("pci.bus_id", "")),
            memory_mb=whole(found.get("memory.total", "")),
            used_mb=whole(found.get("memory.used", "")),
            reserved_mb=whole(found.get("memory.reserved", "")),
            utilization=whole(found.get("utilization.gpu", "")),
            mig=None if mode is None else mode == "Enabled",
        )
        cards.append(card)
    return cards


def processes_of(text: str) -> dict[str, list[dict[str, Any]]]:
    """By the GPU's uuid."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        uuid, pid, memory, name = [*line.split(",", 3), "", "", ""][:4]
        number = whole(pid)
        if number is not None:
            process = {"pid": number, "memory_mb": whole(memory), "kind": "compute", "name": words(name)}
            found.setdefault(uuid.strip(), []).append(process)
    return found


def parts_of(text: str) -> dict[str, list[dict[str, Any]]]:
    """The MIG devices in the answer to `-L`, by the uuid of their GPU."""
    found: dict[str, list[dict[str, Any]]] = {}
    card = ""
    for line in text.splitlines():
        whole_card, part = CARD.match(line), PART.match(line)
        if whole_card:
            card = whole_card.group("uuid")
        elif part:
            row = {"place": int(part.group("place")), "uuid": part.group("uuid"), "name": part.group("name")}
            found.setdefault(card, []).append(row)
    return found


def _part(card: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    # on which part a process of the GPU is, the tool does not tell: a stranger counts on each, our own on none
    processes = card["processes"]
    return {
        "processes": None if processes is None else [dict(process, unplaced=True) for process in processes],
        "index": (card["index"] + 1) * MIG_PLACES + part["place"],
        "uuid": part["uuid"],
        "name": "%s MIG %s" % (card["name"], part["name"]),
        "memory_mb": None,
        "used_mb": None,
        "reserved_mb": None,
        "utilization": None,
        "parent": card["uuid"],
    }


def links_of(text: str, uuids: dict[int, str]) -> dict[str, dict[str, int]]:
    """From the matrix of `topo -m`: its columns and rows are named GPU0, GPU1, …"""
    lines = [COLOURS.sub("", line).split("\t") for line in text.splitlines()]
    header = next((line for line in lines if "GPU0" in [word.strip() for word in line[1:]]), [""])
    columns = {place: word.strip() for place, word in enumerate(header) if re.fullmatch(r"GPU\d+", word.strip())}
    links: dict[str, dict[str, int]] = {}
    for line in lines:
        row = re.fullmatch(r"GPU(\d+)", line[0].strip())
        if row is None or int(row.group(1)) not in uuids:
            continue
        for place, name in columns.items():
            level = _level(line[place].strip()) if place < len(line) else None
            if level is not None and int(name[3:]) in uuids:
                links.setdefault(uuids[int(row.group(1))], {})[uuids[int(name[3:])]] = level
    return links


def _level(text: str) -> int | None:
    return 0 if re.fullmatch(r"NV\d+", text) else LEVELS.get(text)
