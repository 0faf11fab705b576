"""What programs of others say when not they but their infrastructure failed.

`recognise` reads the last lines of a failed program. Built-in signatures know the words of model providers' clients, HTTP
clients, Docker, disks, displays, buses and GPU drivers. So that a program which only talks of such trouble is not
excused by it, only what *ended* the program counts: the exception of its last traceback, with what caused that, or its
last line. A class counts with its module (`openai.RateLimitError`; a class of the program itself is printed without one),
and a line only with the words of a known library or tool.

The signatures are versioned with the judge (`JUDGE_VERSION`), and a corpus of messages of the real libraries decides
about them: tests/corpus.
"""

from __future__ import annotations

from evalfleet.core.failures.signatures.exceptions import of_exceptions
from evalfleet.core.failures.signatures.last_line import of_line, of_stack
from evalfleet.core.failures.signatures.match import Found
from evalfleet.core.failures.signatures.program_end import Ending, ending_of

__all__ = ["Found", "recognise"]


def recognise(text: str) -> Found | None:
    """The kind of infrastructure that ended the program which wrote `text`, with the line that says so.

    None: its own end, as far as can be told.
    """
    match ending_of(text):
        case Ending(raised=raised) if raised:
            return of_exceptions(raised)
        case Ending(stack=stack) if stack:
            return of_stack(stack)
        case Ending(line=line):
            return of_line(line) if line else None
