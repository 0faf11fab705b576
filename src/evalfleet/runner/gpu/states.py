"""The states of a GPU lease on its host."""

from __future__ import annotations

WAITING, LOOKING, STARTING, STARTED, GIVEN_BACK = "waiting", "looking", "starting", "started", "given_back"
STATES = (WAITING, LOOKING, STARTING, STARTED, GIVEN_BACK)

EDGES = {
    (WAITING, LOOKING): ("look",),
    (WAITING, GIVEN_BACK): ("refuse", "give_back"),
    (LOOKING, STARTING): ("start",),
    (LOOKING, STARTED): ("start",),  # a card whose start-up need not be waited for
    (LOOKING, GIVEN_BACK): ("refuse", "give_back"),
    (STARTING, STARTED): ("show", "ready", "settle"),
    (STARTING, GIVEN_BACK): ("give_back",),
    (STARTED, GIVEN_BACK): ("settle", "give_back"),
}
