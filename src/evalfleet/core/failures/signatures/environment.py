"""The world around a program: Docker's daemon, the display, the message bus."""

from __future__ import annotations

import re

from evalfleet.model import Kind

_DOCKER = (
    r"Cannot connect to the Docker daemon",
    r"permission denied while trying to connect to the [Dd]ocker (?:daemon|API)",
    r"failed to connect to the docker API",
    r"error during connect: .*docker",
    r"\b[Ii]s the docker daemon running\?",
    r"Error while fetching server API version: ",  # docker-py
    r"Error response from daemon: .*(?:failed to create (?:shim|task)|storage driver|device or resource busy|containerd)",
    r"Error response from daemon: .*(?:could not select device driver|no available network|layer does not exist)",
    r"Error response from daemon: .*(?:failed to (?:set up|create) (?:container networking|endpoint|network)|nvidia-container-cli)",
    r"Error response from daemon: (?:dial unix|(?:Server )?[Ii]nternal error)",
)
_CANNOT = r"(?i:(?:can't|cannot|could not|couldn't|unable to|failed to) (?:open|connect to) (?:the )?(?:X11 |default )?"
_DISPLAY = (
    _CANNOT + r"X server)\b",
    _CANNOT + r"display)(?:\s*:|\s+[\"':(]|\.?\s*$)",  # not: "could not open Display settings"
    r"XIO: +fatal IO error",
    r"X connection to \S+ broken",
    r"Missing X server or \$DISPLAY",
    r"no display name and no \$DISPLAY environment variable",
    r"Authorization required, but no authorization protocol specified",
)
_BUS = (
    r"Failed to (?:connect to|open connection to) (?:(?:the|\"?(?:system|session)\"?|user|scope|message) ){0,4}bus\b",
    r"Failed to connect to socket /\S*bus\b",
    r"Cannot autolaunch D-Bus without X11",
    r"^Error connecting: Could not connect: ",
    r"org\.freedesktop\.DBus\.Error\.(?:NoServer|Disconnected|NoReply|Timeout)\b",
    r"Lost connection to (?:message )?bus",
    r"g-io-error-quark: Could not connect: ",
    r"Unable to autolaunch a dbus-daemon",
)
_WORDS = re.compile("|".join((*_DOCKER, *_DISPLAY, *_BUS)))
_NAMES = re.compile(
    r"(?:docker|Xlib|_tkinter|tkinter|dbus|gi|jeepney|dasbus|pyautogui|mss|pyvirtualdisplay)\..*|RuntimeError|Exception"
)


def of_exception(name: str, text: str) -> Kind | None:
    return of_words(text) if _NAMES.fullmatch(name) else None


def of_words(text: str) -> Kind | None:
    return Kind.ENVIRONMENT_FAILED if _WORDS.search(text) else None
