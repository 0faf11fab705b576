"""Retired words stay retired in what people read: docs, docstrings, help, messages and the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# A word that was replaced, and what to say. Add a line when another one is.
RETIRED = {
    r"95 ?% (?:sure|intervals?)": "95% CI, 95 % confidence interval",
    r"of all chance": "seed for everything random",
    r"order of wish": "most preferred first",
    r"where lines are printed": "plain output only",
    r"nobody drives": "no controller drives",
    r"exist by themselves": "existing machines",
    r"no purpose any more": "no longer needed",
    r"stewards?": "controller",
    r"mourn(s|ed)?": "lost",
    r"pardon(s|ed)?": "unquarantine",
    r"rescuers?": "connection",
    r"couriers?": "delivery",
    r"ladders?": "readiness checks",
    r"task\.succeeded": "task.done",
    r"worker\.wished": "worker.desired",
    r"pool\.doomed": "pool.deleting",
}
# Names of classes that were replaced; case matters, for the words themselves are English.
NAMES = r"\b(?:Leavings|Doorkeeper|Parcel|Equipment|Glimpse|Peek|Whose|Mover|Assistants|GpuDesk|Rescuer|Steward)\b"
_PATTERN = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b", re.IGNORECASE)
# Phrases that these rooms have lost, too: they name the process, the person or the number instead.
ROOMS = ("cli", "daemon", "engine", "hosts", "operations", "pools", "report", "runner", "store", "web")
_VAGUE = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|everybody|so long(?! as)|so many|of ours|by themselves|wish(?:es|ed)?|(?:is|are) told)\b",
    re.IGNORECASE,
)
_NAMES = {"nobody"}  # the user of that name
_QUOTES = ("docs/contributing/style.md", "docs/decisions/")  # these tell what was before
DOCS = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not path.relative_to(ROOT).as_posix().startswith(_QUOTES)
]
SOURCES = sorted((ROOT / "src" / "evalfleet").rglob("*.py"))
PAGE = sorted((ROOT / "frontend" / "src").rglob("*.svelte"))


def found(text: str) -> list[str]:
    return [match.group() for match in _PATTERN.finditer(text)]


def strings(path: Path) -> str:
    """Docstrings, help, messages: every string of the file."""
    tree = ast.parse(path.read_text("utf-8"))
    return "\n".join(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_the_pattern_finds_what_it_should():
    assert found("The Steward says 95% sure; a `worker.wished` event") == ["Steward", "95% sure", "worker.wished"]
    assert found("a stewardess, bladder, 95% CI") == []


@pytest.mark.parametrize("path", [*DOCS, *PAGE], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_retired_word_in_docs_and_page(path: Path):
    assert found(path.read_text("utf-8")) == []


def test_no_retired_word_in_strings_of_the_code():
    wrong = {path.relative_to(ROOT).as_posix(): found(strings(path)) for path in SOURCES}
    assert {path: words for path, words in wrong.items() if words} == {}


def test_no_retired_name_of_a_class():
    defined = [
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert defined
    assert [name for name in defined if re.fullmatch(NAMES, name)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_vague_subject_in_strings_of_the_rooms_that_people_read(room: str):
    paths = sorted((ROOT / "src" / "evalfleet" / room).rglob("*.py"))
    wrong = {
        path.relative_to(ROOT).as_posix(): [
            text for text in strings(path).splitlines() if _VAGUE.search(text) and text not in _NAMES
        ]
        for path in paths
    }
    assert paths
    assert {path: texts for path, texts in wrong.items() if texts} == {}
