"""A stand-in for a computer-use agent: it takes steps, tells about them, leaves files, and writes its verdict.

It needs Python 3.8 or newer and nothing else. What it does comes from the payload of its task:

    steps      how many steps it takes (default 3)
    step_s     seconds per step (default 0.2)
    score      what the checker will say, from 0 to 1 (default 1)
    usd        what one step costs, in dollars (default 0.002)
    trouble    "crash" (always), "crash_once" (in the first attempt), "model_down_once", or "hang"
"""

import json
import os
import struct
import sys
import time
import zlib
from pathlib import Path

NOTES = ("look at the screen", "open the menu", "type the text", "press save", "check the result")


def tell(**event):
    """Append one event line. Each line is progress: it moves the view, and it postpones the stall limit."""
    with open(os.environ["EVALFLEET_EVENTS"], "a", encoding="utf-8") as events:
        events.write(json.dumps(event) + "\n")


class ModelDown(Exception):
    """The model's endpoint did not answer."""


def fail(error, kind):
    """Say what failed and whose error it was. Neither consumes an attempt of the task, nor is it scored as the agent's:
    "service_failed" (an endpoint that is down), "service_refused" (a key, a used-up quota), "environment_failed" (a browser).
    """
    Path(os.environ["EVALFLEET_RESULT"]).write_text(json.dumps({"error": str(error), "error_kind": kind}))
    sys.exit(1)


def screenshot(path, shade):
    """Write a PNG of 32 x 20 pixels in one shade of grey."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([shade]) * 32) * 20
    header = struct.pack(">IIBBBBB", 32, 20, 8, 0, 0, 0, 0)
    image = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + image)


def main():
    with open(os.environ["EVALFLEET_TASK"], encoding="utf-8") as file:
        task = json.load(file)
    wanted = task["payload"] or {}
    attempt = int(os.environ["EVALFLEET_ATTEMPT_NUMBER"])
    artifacts = Path(os.environ["EVALFLEET_ARTIFACTS"])
    trouble = wanted.get("trouble")
    steps = wanted.get("steps", 3)

    tell(ready=True)
    for step in range(1, steps + 1):
        note = NOTES[(step - 1) % len(NOTES)]
        print(f"step {step}: {note}")
        name = f"step_{step}.png"
        screenshot(artifacts / name, 255 * step // (steps + 1))
        tell(step=step, note=note, screenshot=name, cost_usd=wanted.get("usd", 0.002))
        if trouble == "model_down_once" and attempt == 1:
            raise ModelDown("the model did not answer in 60 s")
        if trouble == "hang" and step == 2:
            time.sleep(3600)
        if trouble == "crash" or (trouble == "crash_once" and attempt == 1):
            sys.exit(f"the window of {task['key']} did not open")
        time.sleep(wanted.get("step_s", 0.2))

    score = wanted.get("score", 1.0)
    result = {"score": score, "success": score >= 1, "steps": steps, "metrics": {"clicks": 2 * steps}}
    Path(os.environ["EVALFLEET_RESULT"]).write_text(json.dumps(result), encoding="utf-8")


try:
    main()
except ModelDown as error:
    fail(error, "service_failed")
