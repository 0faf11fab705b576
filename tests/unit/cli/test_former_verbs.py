"""Verbs of other tools are answered with the command that does the same; none that keeps machines leads to their deletion."""

from __future__ import annotations

import pytest

from evalfleet.cli import main as entry
from evalfleet.cli.former_verbs import hint
from evalfleet.cli.pools.group import COMMANDS as POOL

DELETES = ("delete", "delete-pool", "cleanup")
VERBS = [
    "create",
    "status",
    "probe",
    "vnc",
    "logs",
    "deallocate",
    "delete",
    "vm-start",
    "setup-waa",
    "prepare-windows",
    "run-waa",
    "create-pool",
    "run-pool",
    "pool-status",
    "delete-pool",
    "pool-logs",
    "ssh",
    "list-sizes",
    "list-skus",
    "list-usage",
    "list",
    "show",
    "pull-image",
    "fix-storage",
    "reset-windows",
    "screenshot",
    "setup",
    "stop",
    "analyze",
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("before", [(), ("vm",), ("pool",)], ids=["alone", "vm", "pool"])
def test_every_verb_of_the_papers_finds_its_command(
    before: tuple[str, ...], verb: str, capsys: pytest.CaptureFixture[str]
):
    known = verb in (POOL if before == ("pool",) else entry.NAMES if not before else ())
    if known:
        return
    assert entry.run([*before, verb, "--name", "waa-eval-vm-1"]) == 2
    said = capsys.readouterr().err
    assert "There is no command" in said
    if verb not in DELETES:
        assert "delete" not in said.replace("delete-pool", "")
    if not (before == ("pool",) and verb in ("run-waa", "run-pool", "vm-start", "analyze")):
        assert "`evalfleet " in said, said


def test_every_hint_names_a_command_that_there_is():
    for group in ("", "pool"):
        for verb in VERBS:
            said = hint(group, [verb]) or hint("", ["vm", verb])
            assert said is not None
            words = said.split("`")[1].split()[1:]
            assert words[0] in entry.NAMES
            if words[0] == "pool" and len(words) > 1:
                assert words[1] in POOL


def test_what_is_of_no_other_tool_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]):
    assert entry.run(["statsu"]) == 2
    assert "Did you mean 'status'?" in capsys.readouterr().err
    assert hint("", ["zzz"]) is None
    assert "pool" in str(hint("", ["vm"]))
