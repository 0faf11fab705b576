"""A Python whose wall clock is wrong, by as much as a file says at that moment."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """\
#!{python} -IS
import os, runpy, sys, time

def shift():
    with open({file!r}) as file:
        return float(file.read())

right = time.time
time.time = lambda: right() + shift()
time.time_ns = lambda: int(time.time() * 1e9)
gmtime = time.gmtime
time.gmtime = lambda moment=None: gmtime(time.time() if moment is None else moment)
sys.executable = {path!r}  # whoever begins again with it gets the same clock
words = [word for word in sys.argv[1:] if word not in ("-I", "-S")]
if words[0] == "-c":
    exec(compile(words[1], "<string>", "exec"), {{"__name__": "__main__"}})
else:
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
"""


class SkewedPython:
    """`path` is used as any Python."""

    def __init__(self, folder: Path, off_s: float) -> None:
        self._file = folder / "off"
        self.path = str(folder / "skewed-python")
        self.set(off_s)
        program = Path(self.path)
        program.write_text(_PROGRAM.format(python=sys.executable, file=str(self._file), path=self.path))
        program.chmod(0o755)

    def set(self, off_s: float) -> None:
        """Set its clock, while it runs."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(off_s))
        fresh.rename(self._file)
