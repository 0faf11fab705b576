"""The example of a plug-in, as a stranger installs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "examples" / "plugin"


def install(folder: Path) -> Path:
    """The folder with the plug-in, as pip installs it. It goes on PYTHONPATH."""
    source, site = folder / "source", folder / "site"
    shutil.copytree(SOURCE, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(site), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return site
