"""What an open transaction has done so far, so that it can be done again on another connection.

A caller acts on what a transaction answers before it is committed. So where its connection is cut, the same statements are executed
again, and the caller goes on only if every answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evalfleet.errors import StoreCut

Execute = Callable[[str, Sequence[Any]], Any]


class _Step(NamedTuple):
    text: str
    values: Sequence[Any]
    answer: Any


class Replay:
    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._parts: list[tuple[str, int]] = []  # that are open, and after how many steps each began
        self._possible = True

    def clear(self) -> None:
        """A new transaction begins."""
        self._steps.clear()
        self._parts.clear()
        self._possible = True

    def forbid(self) -> None:
        """The transaction did something that is not among the steps."""
        self._possible = False

    def add(self, text: str, values: Sequence[Any], answer: Any) -> None:
        self._steps.append(_Step(text, values, answer))

    def begin_part(self, name: str) -> None:
        self._parts.append((name, len(self._steps)))

    def end_part(self, *, undone: bool) -> None:
        _, begun = self._parts.pop()
        if undone:
            del self._steps[begun:]

    def run(self, execute: Execute) -> None:
        """Do everything again, inside a new transaction. Raises StoreCut where that is not possible, or an answer differs."""
        if not self._possible:
            raise StoreCut(
                "the connection to the database was cut in the middle of a change; nothing was changed, try again"
            )
        waiting = list(self._parts)
        for number, step in enumerate(self._steps):
            while waiting and waiting[0][1] == number:
                execute(f"savepoint {waiting.pop(0)[0]}", ())
            if execute(step.text, step.values) != step.answer:
                raise StoreCut(
                    "the connection to the database was cut in the middle of a change, and another process changed the same "
                    "meanwhile; nothing was changed by this one, which stops: start it again (`evalfleet resume`)"
                )
        for name, _ in waiting:
            execute(f"savepoint {name}", ())
