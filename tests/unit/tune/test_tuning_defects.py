"""The table of mistakes that tuning invites names tests; they must be there, and must be able to fail."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "explanation" / "mistakes-of-tuning.md"
ROWS = re.findall(r"^\| (\d+) \| .* \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
NAMED = [(int(number), name) for number, cell in ROWS for name in re.findall(r"`([^`]+)`", cell)]


@cache
def functions(file: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_of_the_26_has_a_test():
    assert [int(number) for number, _ in ROWS] == list(range(1, 27))
    assert {number for number, _ in NAMED} == set(range(1, 27))


@pytest.mark.parametrize(("number", "name"), NAMED)
def test_every_test_of_the_table_can_fail(number: int, name: str):
    """It is there, and it claims something: a test that only prints is one of the mistakes."""
    file, _, function = name.partition("::")
    found = functions(file).get(function)
    assert found is not None, f"{number}: there is no {name}"
    claims = [node for node in ast.walk(found) if isinstance(node, ast.Assert)]
    assert claims or "raises" in ast.unparse(found), f"{number}: {name} claims nothing"
