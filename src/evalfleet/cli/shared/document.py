"""JSON documents on standard output."""

from __future__ import annotations

import click
from msgspec import Struct, to_builtins

from evalfleet.answers.base import SCHEMA


def document(answer: Struct) -> str:
    """An answer as one line of JSON that begins with the version of its schema. See docs/reference/json.md."""
    import json

    return json.dumps({"schema": SCHEMA, **to_builtins(answer)})


def print_document(answer: Struct) -> None:
    click.echo(document(answer))


def print_answer(as_json: bool, answer: Struct, text: str) -> None:
    """Print an answer: for programs as JSON, for people as `text`."""
    click.echo(document(answer) if as_json else text)
