"""The lines of the table that `make bench` prints."""

from __future__ import annotations

import os
from dataclasses import dataclass

from measuring import Measured

_WHAT, _FIGURE = 53, 29  # widths that all parts share, because each is printed as soon as it is measured


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    figure: str
    target: str = ""
    ok: bool | None = None  # None: told, not judged


def expect(done: Measured, code: int) -> None:
    if done.code != code:
        raise SystemExit(f"bench: a command ended with {done.code} instead of {code}; the figures would mean nothing")


def print_lines(lines: list[Line]) -> None:
    for line in lines:
        judged = "" if line.ok is None else ("ok" if line.ok else "over")
        print(f"{line.what:<{_WHAT}}  {line.figure:<{_FIGURE}}  {line.target:<9}  {judged}".rstrip(), flush=True)


def print_end(wall_s: float) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"\n{os.cpu_count()} CPUs, load {load}; the whole bench took {wall_s:.0f} s")
