"""Ends a runner with its tasks when the process that started it is gone, and removes its folder. Not imported: nodes get its text.

Standard input is a pipe that ends with that process, however it dies. `sys.argv[2]` is the runner's spool, `sys.argv[3]` the folder with
the runner's programs, and `sys.argv[4]` a folder that is removed then, if one is given.
"""

import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

END_S = 20.0


def held(spool: str) -> bool:
    try:
        with open(os.path.join(spool, "runner.lock"), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False


def tell(spool: str, number: int) -> None:
    try:
        with open(os.path.join(spool, "runner.json"), "rb") as file:
            os.kill(json.load(file)["pid"], number)
    except (OSError, ValueError, KeyError):
        pass


def end(spool: str) -> None:
    """End the runner: first it may end its tasks itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_S
        while held(spool) and time.monotonic() < deadline:
            tell(spool, number)
            time.sleep(0.2)


def main(spool: str, programs: str, removed: str) -> None:
    while os.read(0, 1):
        pass
    end(spool)
    known = sorted(glob.glob(os.path.join(programs, "runner-*.pyz")), key=os.path.getmtime)
    attempts = os.path.join(spool, "attempts")
    if known and os.path.isdir(attempts) and os.listdir(attempts):
        # Tasks of a runner that was killed: the next one ends them before it does anything else.
        words = [sys.executable, "-I", "-S", known[-1], "serve", "--spool", spool, "--idle", "0.1"]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if removed:
        end(spool)
        shutil.rmtree(removed, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(removed))
        except OSError:
            pass  # others have theirs there


main(sys.argv[2], sys.argv[3], sys.argv[4])
