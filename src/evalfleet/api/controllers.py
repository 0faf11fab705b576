"""Controllers in Python."""

from __future__ import annotations

from evalfleet import config
from evalfleet.answers.home import ControllerList
from evalfleet.api.tasks import Folder
from evalfleet.operations import controllers


def list_controllers(*, home: Folder | None = None) -> ControllerList:
    """Who drives which runs, and what waits for a controller: as `evalfleet controllers --json` prints it."""
    return controllers.list_controllers(config.load(home).home)
