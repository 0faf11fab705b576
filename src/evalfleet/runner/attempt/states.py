"""The states of an attempt on its host, from launch to end record."""

from __future__ import annotations

WAITING, RUNNING, ENDING, SWEEPING, SETTLING = "waiting", "running", "ending", "sweeping", "settling"
COLLECTING, SAVING, ENDED = "collecting", "saving", "ended"
STATES = (WAITING, RUNNING, ENDING, SWEEPING, SETTLING, COLLECTING, SAVING, ENDED)

EDGES = {
    (WAITING, RUNNING): ("start",),
    (WAITING, COLLECTING): ("refuse", "stop", "expire"),
    (WAITING, SAVING): ("fail",),
    (RUNNING, ENDING): ("stop",),
    (RUNNING, SWEEPING): ("exit",),
    (RUNNING, COLLECTING): ("refuse",),  # its program could not be executed
    (RUNNING, SAVING): ("fail",),
    (ENDING, SWEEPING): ("exit",),
    (SWEEPING, SETTLING): ("sweep",),
    (SWEEPING, COLLECTING): ("sweep",),
    (SWEEPING, SAVING): ("fail",),
    (SETTLING, COLLECTING): ("settle",),
    (SETTLING, SAVING): ("fail",),
    (COLLECTING, SAVING): ("collect", "fail"),
    (SAVING, ENDED): ("save",),
}
