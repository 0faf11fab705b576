"""Keys and characters as the X server knows them: key symbols."""

from __future__ import annotations

from evalfleet.environments.browser import keys
from evalfleet.errors import InputError

_NAMED = {
    "Backspace": 0xFF08,
    "Tab": 0xFF09,
    "Enter": 0xFF0D,
    "Escape": 0xFF1B,
    "Space": 0x20,
    "PageUp": 0xFF55,
    "PageDown": 0xFF56,
    "End": 0xFF57,
    "Home": 0xFF50,
    "ArrowLeft": 0xFF51,
    "ArrowUp": 0xFF52,
    "ArrowRight": 0xFF53,
    "ArrowDown": 0xFF54,
    "Insert": 0xFF63,
    "Delete": 0xFFFF,
    **{f"F{number}": 0xFFBD + number for number in range(1, 13)},
}
_MODIFIERS = {"Alt": 0xFFE9, "Control": 0xFFE3, "Meta": 0xFFEB, "Shift": 0xFFE1}
SHIFT = _MODIFIERS["Shift"]


def symbol(key: str) -> int:
    """Return the symbol of a key, by its name in browsers or as one character. Raises InputError."""
    if key in _NAMED:
        return _NAMED[key]
    if len(key) == 1:
        return of_character(key)
    raise InputError(f"there is no key {key!r}; use one character or one of: {', '.join(_NAMED)}.")


def of_character(character: str) -> int:
    """Return the symbol that writes a character. Raises InputError for one that no key writes."""
    if character == "\n":
        return _NAMED["Enter"]
    if character == "\t":
        return _NAMED["Tab"]
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
        raise InputError(f"the character {character!r} cannot be typed.")
    return code if code < 0x100 else 0x01000000 | code


def modifiers(names: tuple[str, ...]) -> list[int]:
    """Return the symbols of keys that are held. Raises InputError for a key that modifies nothing."""
    keys.modifiers(names)
    return [_MODIFIERS[name] for name in names]
