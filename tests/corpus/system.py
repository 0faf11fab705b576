"""Programs that meet a bad machine: no Docker daemon, a full disk, no files, processes, display or bus; and other languages' clients.

What needs a GPU comes from `cuda.jsonl`, which was made on a machine that has one.
"""

from __future__ import annotations

from collections.abc import Iterator

FULL = "set -e; mkdir -p full; mount -t tmpfs -o size=64k none full; cd full; "  # in a mount namespace of its own
NO_DOCKER = "export DOCKER_HOST=unix:///tmp/no-docker.sock; "
NO_X = "export DISPLAY=:99; unset WAYLAND_DISPLAY; "
NO_BUS = "export DBUS_SESSION_BUS_ADDRESS=unix:path=/tmp/no-bus DBUS_SYSTEM_BUS_ADDRESS=unix:path=/tmp/no-bus; "

SHELL = {
    "docker-run": ("environment_failed", NO_DOCKER + "docker run --rm alpine true"),
    "docker-ps": ("environment_failed", NO_DOCKER + "docker ps"),
    "docker-pull": ("environment_failed", NO_DOCKER + "docker pull alpine"),
    "docker-tcp": ("environment_failed", "DOCKER_HOST=tcp://127.0.0.1:1 docker ps"),
    "docker-exec": ("environment_failed", NO_DOCKER + "docker exec x ls"),
    "disk-echo": ("disk_full", FULL + "while :; do echo 0123456789012345678901234567890123456789 >> x; done"),
    "disk-dd": ("disk_full", FULL + "dd if=/dev/zero of=x bs=4k count=99 status=none"),
    "disk-cp": ("disk_full", FULL + "cp /bin/bash x"),
    "disk-python": ("disk_full", FULL + "python3 -c \"open('x', 'wb').write(b'x' * 999999)\""),
    "disk-python-log": ("disk_full", FULL + "python3 -c \"import logging\ntry:\n  open('x', 'wb').write(b'x' * 999999)\nexcept OSError:\n  logging.exception('saving'); exit(1)\""),
    "disk-sqlite": ("disk_full", FULL + "python3 -c \"import sqlite3; c = sqlite3.connect('x'); c.execute('create table t(x)'); c.executemany('insert into t values (?)', [('x' * 999,)] * 999); c.commit()\""),
    "disk-node": ("disk_full", FULL + "node -e \"require('fs').writeFileSync('x', 'x'.repeat(999999))\""),
    "files-python": ("host_failed", "ulimit -n 20; python3 -c \"f = [open('/dev/null') for i in range(99)]\""),
    "files-sockets": ("host_failed", "ulimit -n 20; python3 -c \"import socket; f = [socket.socket() for i in range(99)]\""),
    "files-popen": ("host_failed", "ulimit -n 12; python3 -c \"import subprocess; f = [subprocess.Popen(['sleep', '1'], stdout=-1) for i in range(99)]\""),
    "files-node": ("host_failed", "ulimit -n 40; node -e \"for (let i = 0; i < 99; i++) require('fs').openSync('/dev/null')\""),
    "fork-python": ("host_failed", "ulimit -u 1; setpriv --reuid 65534 --clear-groups python3 -c \"import subprocess; f = [subprocess.Popen(['sleep', '1']) for i in range(9)]\""),
    "fork-thread": ("host_failed", "ulimit -u 1; setpriv --reuid 65534 --clear-groups python3 -c \"import threading, time; f = [threading.Thread(target=time.sleep, args=[1]).start() for i in range(9)]\""),
    "fork-bash": ("host_failed", "ulimit -u 1; setpriv --reuid 65534 --clear-groups bash -c 'ls & ls | cat'"),
    "x-xlib": ("environment_failed", NO_X + "exec \"$PYTHON\" -c 'from Xlib.display import Display; Display()'"),
    "x-tk": ("environment_failed", NO_X + "python3 -c 'import tkinter; tkinter.Tk()'"),
    "x-xdotool": ("environment_failed", NO_X + "xdotool key a"),
    "x-xterm": ("environment_failed", NO_X + "xterm"),
    "x-xclock": ("environment_failed", NO_X + "xclock"),
    "x-xset": ("environment_failed", NO_X + "xset q"),
    "x-xdpyinfo": ("environment_failed", NO_X + "xdpyinfo"),
    "x-xrandr": ("environment_failed", NO_X + "xrandr"),
    "x-mousepad": ("environment_failed", NO_X + "mousepad"),
    "x-wmctrl": ("environment_failed", NO_X + "wmctrl -l"),
    "x-import": ("environment_failed", NO_X + "xwd -root -out /dev/null"),
    "bus-gdbus": ("environment_failed", NO_BUS + "gdbus call --session --dest a.b --object-path / --method a.b.C"),
    "bus-gdbus-system": ("environment_failed", NO_BUS + "gdbus introspect --system --dest a.b --object-path /"),
    "bus-dbus-send": ("environment_failed", NO_BUS + "dbus-send --session --print-reply --dest=a.b / a.b.C"),
    "bus-gsettings": ("environment_failed", NO_BUS + "busctl --user list"),
    "gpu-smi": ("environment_failed", "nvidia-smi"),
}  # fmt: skip
# failure of the endpoint -> commands that ask it
ASKING = {
    "refuse": {
        "curl": "curl -sS $URL",
        "wget": "wget -q -O- $URL || wget -O- $URL 2>&1 | tail -1 >&2; false",
        "node-fetch": "node -e \"fetch(process.env.URL).then(r => r.text())\"",
        "node-http": "node -e \"require('http').get(process.env.URL)\"",
        "git": "git clone -q $URL/x.git",
    },
    "dns": {
        "curl": "curl -sS $URL",
        "node-fetch": "node -e \"fetch(process.env.URL).then(r => r.text())\"",
        "node-http": "node -e \"require('http').get(process.env.URL)\"",
        "git": "git clone -q $URL/x.git",
        "ssh": "ssh -o BatchMode=yes no-such-provider.invalid true",
    },
    "tls": {
        "curl": "curl -sS $URL",
        "node-fetch": "node -e \"fetch(process.env.URL).then(r => r.text())\"",
        "node-https": "node -e \"require('https').get(process.env.URL)\"",
    },
    "server": {"curl": "curl -sSf $URL", "git": "git clone -q $URL/x.git"},
    "rate": {"curl": "curl -sSf $URL"},
    "hang": {"curl": "curl -sS -m 1 $URL"},
    "close": {"curl": "curl -sS $URL", "node-http": "node -e \"require('http').get(process.env.URL)\""},
    "cut": {"curl": "curl -sS $URL"},
    "reset": {"curl": "curl -sS $URL", "node-http": "node -e \"require('http').get(process.env.URL)\""},
}  # fmt: skip


def programs() -> Iterator[tuple[str, str, list[str]]]:
    """Id, kind and command. The failure of the endpoint is the second part of the id."""
    for name, (kind, script) in SHELL.items():
        alone = ["unshare", "-m"] if script.startswith(FULL) else []
        yield f"machine/missing/{name}", kind, [*alone, "bash", "-c", script]
    for failure, commands in ASKING.items():
        for name, script in commands.items():
            yield f"tool/{failure}/{name}", "service_failed", ["bash", "-c", script]
    yield "tool/key/curl", "service_refused", ["bash", "-c", "curl -sSf $URL"]
