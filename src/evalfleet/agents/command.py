"""An agent that is a command: `cmd:python3 my_agent.py`. It acts over HTTP, in any language.

This module only describes it for a submission; `evalfleet.benchmarks.command_agent` runs it.
"""

from __future__ import annotations

import os
import shlex
import shutil

from evalfleet.agents.base import Agent, TaskPrompt
from evalfleet.errors import InputError

PREFIX = "cmd:"


class Command:
    """Implements `AgentClass`, for the program of an attempt to recognise.

    Args:
        name: with its prefix.
        folder: where a program with a relative path lies; the current one, where it is None.

    Raises:
        InputError: it is not a command, or there is no such program.
    """

    title = "a command that acts over HTTP"

    def __init__(self, name: str, *, folder: str | None = None) -> None:
        try:
            self.words = shlex.split(name.removeprefix(PREFIX))
        except ValueError as error:
            raise InputError(f"agent {name!r}: {str(error).lower()}; quote it as for a shell.") from None
        if not self.words or "\0" in name:
            raise InputError(f'agent {name!r}: the command is missing; name one: "{PREFIX}python3 my_agent.py".')
        program = self.words[0]
        found = os.path.join(folder or "", program) if os.sep in program else program
        if shutil.which(found) is None:
            raise InputError(f"agent {name!r}: there is no program {program!r} that can be run.")

    def __call__(self, prompt: TaskPrompt) -> Agent:
        raise InputError(f"a command can only act in an attempt, not here: {shlex.join(self.words)}")
