"""The installation of Windows in a container of the stand-in: a disk that grows, a guest that answers at last, QEMU's monitor.

It begins when a container is run with an empty folder as `/storage`. These files in the daemon's folder make it go wrong:
`install-hangs` (Windows never answers), `install-ends` (the container ends), `lacks` (a program's file that is not there) and
`keeps-running` (Windows does not shut down).
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from evalfleet.testing.pages import picture

MIB = 1 << 20


class Installation:
    """Of one container."""

    def __init__(self, folder: Path, storage: Path, has_iso: bool, monitor: Monitor) -> None:
        self._folder, self._storage, self._has_iso, self._monitor = folder, storage, has_iso, monitor
        monitor.server_activate()
        threading.Thread(target=monitor.serve_forever, daemon=True).start()
        threading.Thread(target=self._install, daemon=True).start()

    def _install(self) -> None:
        with (self._storage / "data.img").open("wb") as disk:
            for _ in range(4):
                disk.write(b"w" * MIB)
                disk.flush()
                time.sleep(0.1)
            disk.truncate(64 * MIB)
        (self._storage / "windows.base").write_text("iso" if self._has_iso else "download", "utf-8")
        if not (self._folder / "install-hangs").exists():
            (self._folder / "silent").unlink(missing_ok=True)

    def shut_down(self) -> None:
        if (self._folder / "keeps-running").exists():
            return
        (self._folder / "silent").touch()
        self._monitor.shutdown()
        self._monitor.server_close()
        (self._storage / "windows.boot").touch()


def begun(folder: Path, args: Sequence[str], monitor: Monitor) -> Installation | None:
    """What begins with a call of `docker`, if it is `docker run` with an empty folder as /storage."""
    if not args or args[0] != "run":
        return None
    volume = next((word for word in args if word.endswith(":/storage")), None)
    storage = Path(volume.removesuffix(":/storage")) if volume else None
    if storage is None or not storage.is_dir() or (storage / "data.img").exists():
        return None
    (folder / "silent").touch()
    return Installation(folder, storage, any("target=/custom.iso" in word for word in args), monitor)


class Monitor(socketserver.ThreadingTCPServer):
    """QEMU's monitor: its port is taken from the beginning, and nobody is let in before QEMU runs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session, bind_and_activate=False)
        self.server_bind()


class _Session(socketserver.StreamRequestHandler):
    """As far as it is asked."""

    def handle(self) -> None:
        self._say({"QMP": {"version": {}, "capabilities": []}})
        for line in self.rfile:
            asked = json.loads(line)
            if asked["execute"] == "screendump":
                Path(asked["arguments"]["filename"]).write_bytes(picture())
                self._say({"event": "NIC_RX_FILTER_CHANGED"})
            self._say({"return": {}})

    def _say(self, answer: object) -> None:
        self.wfile.write(json.dumps(answer).encode() + b"\r\n")
