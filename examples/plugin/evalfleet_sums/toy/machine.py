"""One machine of the toy cloud: a process that starts `sshd -i` for each connection, and ends when its file says so.

It is started with its folder and the file descriptor of its lock, which it holds as long as it lives. It needs nobody:
at its deadline it stops by itself, with every process that was started on it. It uses the standard library only.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LOOK_S = 0.05
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: processes whose parent ends become ours, so that none is lost from sight


def main(folder: Path, lock: int) -> None:
    os.set_inheritable(lock, False)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        fresh = folder / "port.new"
        fresh.write_text(str(server.getsockname()[1]))
        fresh.replace(folder / "port")
        while (wanted := read(folder))["power"] == "on" and time.time() < wanted["stops_at"]:
            if select.select([server], [], [], LOOK_S)[0]:
                connect(folder, server.accept()[0])
            reap()
    end_children()


def read(folder: Path) -> dict:
    return json.loads((folder / "machine.json").read_text())


def connect(folder: Path, connection: socket.socket) -> None:
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.defpath) or "sshd"
    with connection, (folder / "console.log").open("ab") as log:
        command = [sshd, "-i", "-e", "-f", str(folder / "sshd_config")]
        subprocess.Popen(command, stdin=connection.fileno(), stdout=connection.fileno(), stderr=log)


def reap() -> bool:
    """Take note of children that ended. False: there are no children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_children() -> None:
    """Children of those that are killed become ours, and are killed next."""
    while reap():
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.005)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
