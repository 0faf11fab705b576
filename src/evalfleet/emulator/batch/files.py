"""Files of tasks and nodes: lists and contents, while the node that has them is there."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path

from aiohttp import web

from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.batch.errors import BatchError
from evalfleet.emulator.clock import iso


def missing() -> BatchError:
    return BatchError(404, "FileNotFound", "The specified file does not exist.")


def node_gone() -> BatchError:
    return BatchError(409, "NodeNotReady", "The node is not in a state in which its files can be read.")


def listed(root: Path, base: str, *, recursive: bool) -> list[Body]:
    """All files below a folder, or its first level."""
    if not root.is_dir():
        return []
    paths: Iterable[Path] = sorted(root.rglob("*") if recursive else root.iterdir())
    found: list[Body] = []
    for path in paths:
        try:
            size, changed = path.stat().st_size, path.stat().st_mtime
        except OSError:
            continue  # it went while we looked
        name = str(path.relative_to(root))
        row: Body = {"name": name, "url": f"{base}/{name}", "isDirectory": path.is_dir()}
        if not path.is_dir():
            row["properties"] = {"lastModified": iso(changed), "contentLength": str(size), "contentType": "text/plain"}
        found.append(row)
    return found


def read(root: Path, name: str, request: web.Request) -> web.Response:
    """One file, or the part of it that `ocp-range` names. Raises BatchError."""
    path = (root / name).resolve()
    if root.resolve() not in path.parents or not path.is_file():
        raise missing()
    data = path.read_bytes()
    headers = {
        "ocp-creation-time": _rfc(path.stat().st_mtime),
        "Last-Modified": _rfc(path.stat().st_mtime),
        "ocp-batch-file-isdirectory": "False",
        "ocp-batch-file-url": str(request.url),
        "ocp-batch-file-mode": "0o100644",
    }
    wanted = request.headers.get("ocp-range", "").removeprefix("bytes=")
    if wanted:
        begin, _, end = wanted.partition("-")
        data = data[int(begin or 0) : int(end) + 1 if end else None]
    if request.method == "HEAD":
        headers["Content-Length"] = str(len(data))
        return web.Response(headers=headers, content_type="application/octet-stream")
    return web.Response(body=data, headers=headers, content_type="application/octet-stream")


def _rfc(at: float) -> str:
    return formatdate(at, usegmt=True)
