"""The version, where the package is installed and where it is only a folder of sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_source_tree_without_metadata_has_a_version_too(tmp_path: Path):
    """`PYTHONPATH=src python -m evalfleet version`, with the libraries and without evalfleet installed."""
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    for library in libraries:
        for entry in Path(library).iterdir():
            if "evalfleet" not in entry.name.lower() and not (tmp_path / entry.name).exists():
                (tmp_path / entry.name).symlink_to(entry)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "evalfleet", "version"],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("evalfleet 0+source (Python ")
