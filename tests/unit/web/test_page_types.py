"""The page's types are made of the server's structs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "page_types.py"
FILE = ROOT / "frontend" / "src" / "lib" / "answers.ts"


def run(script: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *args], capture_output=True, text=True, check=False)


def copied(tmp_path: Path, text: str | None) -> tuple[Path, Path]:
    """The script in a checkout of its own, whose file has this text."""
    script = tmp_path / "scripts" / "page_types.py"
    file = tmp_path / FILE.relative_to(ROOT)
    for path in (script, file):
        path.parent.mkdir(parents=True)
    script.write_text(SCRIPT.read_text())
    if text is not None:
        file.write_text(text)
    return script, file


def test_the_types_in_the_repository_are_those_of_the_server() -> None:
    done = run(SCRIPT, "--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_file_is_refused_and_written_anew(tmp_path: Path) -> None:
    fresh = FILE.read_text()
    script, file = copied(tmp_path, fresh.replace("score_valid: number | null", "score_valid: number"))
    done = run(script, "--check")
    assert (done.returncode, "answers.ts is stale" in done.stderr) == (1, True)
    assert file.read_text() != fresh, "a check changes nothing"
    assert run(script).returncode == 0
    assert file.read_text() == fresh


def test_what_the_page_reads_is_there_as_it_is() -> None:
    text = FILE.read_text()
    assert "  bars: ([number, number, number, number | null, " in text, "tuples stay tuples"
    assert "  ci95_valid: [number, number] | null;" in text
    assert '"running"' in text.partition("export type TaskState = ")[2].partition(";")[0]
    assert "export interface NewRun" not in text, "what is sent to the server is not an answer"
