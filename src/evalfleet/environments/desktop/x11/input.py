"""Pointer and keyboard of an X desktop, through the server's XTEST extension: to applications they are real devices."""

from __future__ import annotations

import struct
import time
from collections.abc import Generator
from contextlib import contextmanager

from evalfleet.actions import Action, Click, Drag, Move, Press, Scroll, Wait, Write
from evalfleet.environments.base import LONGEST_WAIT_S, PRESS_LIMIT
from evalfleet.environments.desktop.x11 import keys
from evalfleet.environments.desktop.x11.protocol import XConnection
from evalfleet.environments.desktop.x11.windows import XWindows
from evalfleet.errors import DesktopError, InputError

_KEY_DOWN, _KEY_UP, _BUTTON_DOWN, _BUTTON_UP, _MOTION = 2, 3, 4, 5, 6
_LEFT, _WHEEL_UP, _WHEEL_DOWN, _WHEEL_LEFT, _WHEEL_RIGHT = 1, 4, 5, 6, 7
_NOTCH = 100.0  # pixels of scrolling per notch of the wheel
_MOST_NOTCHES = 100
_MANAGER_S = 30.0
_VENDORS = 0x10000000  # from here on: symbols of multimedia keys and the like
_DRAG_MOVES = 8
_DRAG_PAUSE_MS = 8  # between the moves of a drag: an application that gets all moves at once sees no movement


class XInput:
    """Performs actions. One per connection; used by one thread."""

    def __init__(self, connection: XConnection, windows: XWindows) -> None:
        self._connection = connection
        self._windows = windows
        self._opcode = connection.extension("XTEST")
        self._codes: dict[int, tuple[int, bool]] = {}  # symbol -> key code, whether Shift must be held
        run: list[int] = []
        self._spare: list[int] = []  # the longest row of unused keys
        for code, symbols in enumerate(connection.keyboard(), connection.first_key):
            useless = all(symbol == 0 or symbol >= _VENDORS for symbol in symbols)
            run = [*run, code] if useless else []
            self._spare = max(self._spare, run, key=len)
            for shifted, found in enumerate(symbols[:2]):
                if found:
                    self._codes.setdefault(found, (code, bool(shifted)))
        self._borrowed: dict[int, tuple[int, bool]] = {}  # the same for symbols that are on no key, on spare ones

    def perform(self, action: Action) -> None:
        """Carry out one action, and return when the server and the window manager have seen it.

        Raises:
            InputError: it cannot be done.
        """
        match action:
            case Click():
                with self._held(action.held):
                    self._move(action.x, action.y)
                    for _ in range(min(action.count, PRESS_LIMIT)):
                        self._button(_LEFT)
            case Move():
                self._move(action.x, action.y)
            case Drag():
                self._drag(action)
            case Scroll():
                self._move(action.x, action.y)
                self._turn(action.dy, _WHEEL_UP, _WHEEL_DOWN)
                self._turn(action.dx, _WHEEL_LEFT, _WHEEL_RIGHT)
            case Write():
                self._write(action.text)
            case Press():
                symbol = keys.symbol(action.key)
                self._borrow([symbol])
                with self._held(action.held):
                    for _ in range(min(action.times, PRESS_LIMIT)):
                        self._key(symbol)
            case Wait():
                time.sleep(min(max(action.seconds, 0.0), LONGEST_WAIT_S))
        # The window manager holds a click back until it has given the window its focus; keys would overtake the click.
        if not self._windows.manager_answers(timeout_s=_MANAGER_S):
            raise DesktopError(f"the window manager did not answer within {_MANAGER_S:g} s")

    def hold(self, symbol: int, *, down: bool) -> None:
        """Press or release the key with a symbol, as a person does; Shift is pressed separately."""
        if symbol not in self._codes and symbol not in self._borrowed:
            self._borrow([symbol])
        code, _ = self._codes.get(symbol) or self._borrowed[symbol]
        self._fake(_KEY_DOWN if down else _KEY_UP, code)

    def point(self, x: float, y: float, before: int, now: int) -> None:
        """Move the pointer, and press or release the buttons that differ; bit 0 is the first."""
        self._move(x, y)
        for button in range(1, 8):
            bit = 1 << (button - 1)
            if (before ^ now) & bit:
                self._fake(_BUTTON_DOWN if now & bit else _BUTTON_UP, button)

    def _write(self, text: str) -> None:
        left = [keys.of_character(character) for character in text]
        while left:
            count = self._borrow(left)
            for symbol in left[:count]:
                self._key(symbol)
            del left[:count]

    def _drag(self, action: Drag) -> None:
        self._move(action.x, action.y)
        self._fake(_BUTTON_DOWN, _LEFT)
        for part in range(1, _DRAG_MOVES + 1):
            share = part / _DRAG_MOVES
            x = action.x + (action.to_x - action.x) * share
            self._move(x, action.y + (action.to_y - action.y) * share, after_ms=_DRAG_PAUSE_MS)
        self._fake(_BUTTON_UP, _LEFT, after_ms=_DRAG_PAUSE_MS)

    def _turn(self, pixels: float, back: int, forth: int) -> None:
        notches = min(_MOST_NOTCHES, max(1, round(abs(pixels) / _NOTCH))) if pixels else 0
        for _ in range(notches):
            self._button(forth if pixels > 0 else back)

    def _move(self, x: float, y: float, *, after_ms: int = 0) -> None:
        size = self._connection.size
        place = min(max(round(x), 0), size.width - 1), min(max(round(y), 0), size.height - 1)
        self._fake(_MOTION, 0, place=place, after_ms=after_ms)

    def _button(self, number: int) -> None:
        self._fake(_BUTTON_DOWN, number)
        self._fake(_BUTTON_UP, number)

    def _key(self, symbol: int) -> None:
        code, shifted = self._codes.get(symbol) or self._borrowed[symbol]
        shift = self._codes[keys.SHIFT][0]
        if shifted:
            self._fake(_KEY_DOWN, shift)
        self._fake(_KEY_DOWN, code)
        self._fake(_KEY_UP, code)
        if shifted:
            self._fake(_KEY_UP, shift)

    @contextmanager
    def _held(self, names: tuple[str, ...]) -> Generator[None]:
        codes = [self._codes[symbol][0] for symbol in keys.modifiers(names)]
        for code in codes:
            self._fake(_KEY_DOWN, code)
        try:
            yield
        finally:
            for code in reversed(codes):
                self._fake(_KEY_UP, code)

    def _borrow(self, symbols: list[int]) -> int:
        """Map symbols without a key to spare keys; return how many symbols, from the first on, can be written then."""
        room = 2 * len(self._spare)
        wanted: dict[int, None] = {}
        count = len(symbols)
        for place, symbol in enumerate(symbols):
            if symbol not in self._codes and symbol not in wanted:
                if len(wanted) == room:
                    count = place
                    break
                wanted[symbol] = None
        fresh = [symbol for symbol in wanted if symbol not in self._borrowed]
        if fresh and not room:
            raise InputError("the keyboard has no spare key for characters that are not on it.")
        if len(self._borrowed) + len(fresh) > room:
            # An application looks up a key when it handles the event, not when the event happened.
            self._windows.catch_up()
            self._borrowed, fresh = {}, list(wanted)
        for symbol in fresh:
            place = len(self._borrowed)
            self._borrowed[symbol] = self._spare[place // 2], bool(place % 2)
        if fresh:  # in one request, because applications read the whole keyboard again after each
            held = list(self._borrowed)
            self._connection.map_keys(self._spare[0], [*held, *[0] * (len(held) % 2)])
        return count

    def _fake(self, kind: int, detail: int, *, place: tuple[int, int] = (0, 0), after_ms: int = 0) -> None:
        event = struct.pack("<BBxxII8xhh8x", kind, detail, after_ms, self._connection.root, *place)
        self._connection.tell(self._opcode, 2, event)
