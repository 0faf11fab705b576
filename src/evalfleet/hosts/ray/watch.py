"""Runs beside an actor's runner and ends it with its tasks when the actor is gone. Not imported: Ray nodes get its text.

Standard input is a pipe that ends with the actor's process, however that dies. `sys.argv[2]` is the runner's folder.
"""

import fcntl
import glob
import json
import os
import signal
import subprocess
import sys
import time

END_S = 20.0


def held(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "runner.lock"), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def tell(folder: str, number: int) -> None:
    try:
        with open(os.path.join(folder, "runner.json"), "rb") as file:
            os.kill(json.load(file)["pid"], number)
    except (OSError, ValueError, KeyError):
        pass


def main(folder: str) -> None:
    while os.read(0, 1):
        pass
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_S
        while held(folder) and time.monotonic() < deadline:
            tell(folder, number)
            time.sleep(0.2)
    programs = sorted(glob.glob(os.path.join(folder, "runner-*.pyz")), key=os.path.getmtime)
    attempts = os.path.join(folder, "attempts")
    if programs and os.path.isdir(attempts) and os.listdir(attempts):
        # Tasks of a runner that was killed: the next one ends them before it does anything else.
        words = [sys.executable, "-I", "-S", programs[-1], "serve", "--spool", folder, "--idle", "0.1"]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)


main(sys.argv[2])
