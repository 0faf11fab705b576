"""How the output of a program ends: with Python exceptions, with the stack of another language, or with a plain line."""

from __future__ import annotations

import re

from msgspec import Struct

_LONGEST_LINE = 2000
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_GROUP = re.compile(r"^ *[|+][-+| ]*(?: (?=\S)|$)")
_HEAD = re.compile(r"(?:.* )?(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]*)", line \d+(?:, in (?P<function>\S+))?')
_EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:: (?P<words>.*))?")
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

# What is printed after the end by libraries, interpreters and shells, and says nothing about its cause.
_NOISE = re.compile(
    r"\s*$|See '\w+ .*--help'\.?$|Run '\w+ .*--help' for more information|.*\bUnclosed (?:client session|connector|connection)$"
    r"|client_session: <|connector: <|connections: \[|Node\.js v\d|Exception ignored in|sys:1: |.*Warning: |Aborted\b"
    r"|\(core dumped\)|Sentry is attempting|make: \*\*\*|ERROR conda\.cli|During task with name"
    r"|More details here: https://curl|curl failed to verify|establish a secure connection to it|how to fix it, please visit"
    r"|Give Feedback / Get Help|LiteLLM\.Info: |wandb: |swallowing exception|Task was destroyed but it is pending|task: <"
)
# How messages of several lines go on.
_GOES_ON = re.compile(
    r"\s|[<{}\[\]\"')]|(?:Code|Message|Target|Content|Details|Status|Request ID|Inner error|Exception Details|Reason): ?"
    r"|For (?:more|debugging)|GPU device may|Compile with|CUDA kernel errors|Search for|Device-side|Call log:|=+$|-+$"
    r"|Received Model Group|Available Model Group|LiteLLM|(?:See|Please|Learn more|Visit|Check)\b"
)
_TRAILER = re.compile(
    r"(?:Code|Message|Target|Content|Inner error|Exception Details|Additional Information): ?|For more information"
)
_TITLE = re.compile(r"<title>(\d{3} [^<]*)</title>")
_GIVES_UP = re.compile(
    r"(?i)\b(?:giv(?:e|es|ing|en) up|gave up|abort\w*|exit(?:s|ing)?|stopping|quit\w*|terminat\w*|bailing out)\b"
)
_MOST_AFTER = 12
_STACK_LINE = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|Caused by: |\s*\[cause\]: |\s+what\(\):|goroutine \d+ |Emitted 'error' event|\s|[}{\]]"
)
_STACK_MARK = re.compile(r"\s+at \S|\s+what\(\): |Caused by: ")
_MOST_STACK = 80


class Raised(Struct, frozen=True, kw_only=True):
    """One exception of a chain."""

    name: str  # the class with its module, as it is printed
    words: str
    place: str = ""  # file and function of the innermost frame
    more: tuple[str, ...] = ()  # further lines of its message
    explicit: bool = False  # the next one of the chain is its `from`; else that was being handled

    @property
    def line(self) -> str:
        return " ".join((f"{self.name}: {self.words}" if self.words else self.name, *self.more[:3]))

    @property
    def text(self) -> str:
        return " ".join((self.words, *self.more))

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


class Ending(Struct, frozen=True, kw_only=True):
    raised: tuple[Raised, ...] = ()  # the last exception first, then what caused it
    stack: tuple[str, ...] = ()
    line: str = ""


def ending_of(text: str) -> Ending:
    lines = [_ANSI.sub("", line)[:_LONGEST_LINE].rstrip() for line in text.splitlines()]
    if any("Exception Group Traceback" in line for line in lines):
        lines = [_GROUP.sub("", line, count=1) for line in lines]
    raised = _exceptions(lines)
    if raised:
        return Ending(raised=raised)
    while lines and _NOISE.match(lines[-1]):
        lines.pop()
    stack = _stack(lines)
    return Ending(stack=stack) if stack else Ending(line=_last_line(lines))


def _last_line(lines: list[str]) -> str:
    """The last line that is not a further line of a message; of a web page its title."""
    if lines and lines[-1].strip() == "</html>":
        return next((f"HTTP Error {title[1]}" for line in reversed(lines) if (title := _TITLE.search(line))), "")
    last = len(lines) - 1
    while last > 0 and len(lines) - last <= _MOST_AFTER and _TRAILER.match(lines[last]):
        last -= 1
    return " ".join(line.strip() for line in lines[max(0, last) :])


class _Reader:
    """Gathers the chain of exceptions that the text ends with."""

    def __init__(self) -> None:
        self.chain: list[Raised] = []  # the oldest first
        self.after: list[str] = []  # lines since the last exception
        self._inside = False
        self._place = ""
        self._link: str | None = None

    def read(self, line: str) -> None:
        frame = _FRAME.match(line)
        if _HEAD.fullmatch(line):
            if self._link is None:
                self.chain = []
            self._inside, self._place = True, ""
        elif frame:
            # The head may be cut off: a frame is enough.
            self._inside, self._place = True, f"{frame['file']} {frame['function'] or ''}"
        elif line in (_CAUSE, _CONTEXT):
            self._link = line
        elif self._inside and line and not line[0].isspace():
            self._raise(line)
        elif not self._inside:
            self.after.append(line)

    def _raise(self, line: str) -> None:
        self._inside = False
        found = _EXCEPTION.fullmatch(line)
        if not found:
            self.chain = []
            self.after = [line]
            return
        if self.chain and self._link:
            self.chain[-1] = _with(self.chain[-1], self.after)
        one = Raised(name=found["name"], words=found["words"] or "", place=self._place, explicit=self._link == _CAUSE)
        self.chain.append(one)
        self.after, self._link = [], None


def _with(raised: Raised, more: list[str]) -> Raised:
    words = tuple(line.strip() for line in more if line.strip())
    return Raised(name=raised.name, words=raised.words, place=raised.place, more=words, explicit=raised.explicit)


def _exceptions(lines: list[str]) -> tuple[Raised, ...]:
    reader = _Reader()
    for line in lines:
        reader.read(line)
    after = [line for line in reader.after if not _NOISE.match(line)]
    if not reader.chain or len(after) > _MOST_AFTER:
        return ()
    if not all(_GOES_ON.match(line) or _GIVES_UP.search(line) for line in after):
        return ()  # something else was said later
    last = _with(reader.chain[-1], [line for line in after if not _GIVES_UP.search(line)])
    return (last, *reversed(reader.chain[:-1]))


def _stack(lines: list[str]) -> tuple[str, ...]:
    """The lines of a stack as node, Java or C++ print it, with its head; empty where the text ends otherwise."""
    first = len(lines)
    while first > 0 and len(lines) - first < _MOST_STACK and _STACK_LINE.match(lines[first - 1]):
        first -= 1
    if first == len(lines) or not any(_STACK_MARK.match(line) for line in lines[first:]):
        return ()
    return tuple(lines[max(0, first - 1) :])
