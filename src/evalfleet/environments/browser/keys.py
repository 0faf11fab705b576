"""Keys by their names in browsers, for the DevTools protocol. Other environments use the same names."""

from __future__ import annotations

from typing import Any

from evalfleet.errors import InputError

_NAMED: dict[str, tuple[int, str]] = {  # key -> virtual key code, text that it writes
    "Backspace": (8, ""),
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Space": (32, " "),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Insert": (45, ""),
    "Delete": (46, ""),
    **{f"F{number}": (111 + number, "") for number in range(1, 13)},
}
NAMES = tuple(_NAMED)
_MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


def modifiers(names: tuple[str, ...]) -> int:
    """Return the protocol's bits. Raises InputError for a key that modifies nothing."""
    for name in names:
        if name not in _MODIFIERS:
            raise InputError(f"{name!r} is not a modifier; known: {', '.join(_MODIFIERS)}.")
    return sum(_MODIFIERS[name] for name in names)


def events(key: str, held: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the parameters of `Input.dispatchKeyEvent` for pressing and releasing one key.

    Args:
        key: a name such as "Enter" or "ArrowDown", or one character.
        held: modifiers that are held meanwhile: "Control", "Shift", "Alt", "Meta".

    Raises:
        InputError: there is no such key.
    """
    bits = modifiers(held)
    if key in _NAMED:
        code, text = _NAMED[key]
        name = " " if key == "Space" else key
    elif len(key) == 1:
        code = ord(key.upper()) if key.isascii() and key.isalnum() else 0
        name = text = key
    else:
        raise InputError(f"there is no key {key!r}; use one character or one of: {', '.join(_NAMED)}.")
    down: dict[str, Any] = {"type": "rawKeyDown", "key": name, "windowsVirtualKeyCode": code, "modifiers": bits}
    if key in _NAMED:
        down["code"] = key
    if text and not bits & ~_MODIFIERS["Shift"]:  # with Control, Alt or Meta a key is a command and writes nothing
        down |= {"type": "keyDown", "text": text, "unmodifiedText": text}
    return [down, {**down, "type": "keyUp"}]
