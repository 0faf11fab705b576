"""Output of several hosts, printed in whole lines that start with the host."""

from __future__ import annotations

import sys

import click

LONGEST = 1 << 16  # of a line that does not end: it is printed in pieces


class Lines:
    """Puts together the lines of each host and stream, and prints them as they become whole."""

    def __init__(self, width: int) -> None:
        """
        Args:
            width: of the longest name in front.
        """
        self._width = width
        self._halves: dict[tuple[str, str], bytes] = {}

    def feed(self, host: str, stream: str, data: bytes) -> None:
        *whole, half = (self._halves.get((host, stream), b"") + data).split(b"\n")
        for line in whole:
            self.line(host, line.decode("utf-8", "replace"), err=stream == "stderr")
        if len(half) >= LONGEST:
            self.line(host, half.decode("utf-8", "replace"), err=stream == "stderr")
            half = b""
        self._halves[host, stream] = half

    def end(self, host: str) -> None:
        """Print what is left of a host's lines."""
        for (name, stream), half in list(self._halves.items()):
            if name == host and half:
                self.line(host, half.decode("utf-8", "replace"), err=stream == "stderr")
            if name == host:
                del self._halves[name, stream]

    def line(self, front: str, text: str, *, err: bool = False) -> None:
        from evalfleet.cli.results.logs import harmless

        text = text.rstrip("\r")
        if (sys.stderr if err else sys.stdout).isatty():
            text = harmless(text, colour=True)
        click.echo(f"{front:<{self._width}} | {text}", err=err)
