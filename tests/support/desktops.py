"""A task with a real desktop, and the look of it in the page."""

from __future__ import annotations

# A terminal on a real desktop, which writes down the line that is typed into it: its argument names the file.
DESKTOP = """
import os, pathlib, sys, tempfile, time
from evalfleet.environments.desktop import environment as desktop
from evalfleet.environments.desktop.sandbox import Mode
from evalfleet.environments.base import Size
folder = pathlib.Path(os.environ["EVALFLEET_RESULT"]).parent
typed = sys.argv[1]
with tempfile.TemporaryDirectory() as place, desktop.launched(
    pathlib.Path(place), size=Size(width=640, height=400), mode=Mode.PLAIN, view=folder / "vnc.sock"
) as one:
    one.launch(["xterm", "-maximized", "-e", "sh", "-c", f"read line; echo $line > {typed}"])
    while not os.path.exists(typed):
        time.sleep(0.1)
"""

# How many colours the shared screen has: none before the first picture came.
COLOURS = """(() => { const screen = document.querySelector(".screen canvas"); if (!screen || !screen.width) return 0;
    const data = screen.getContext("2d").getImageData(0, 0, screen.width, screen.height).data;
    return new Set(new Uint32Array(data.buffer)).size; })()"""
