"""The emulator's extra brings none of Azure's libraries: it starts without them."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("azure.core", "azure.batch", "azure.mgmt", "azure.identity")):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import evalfleet.emulator.server
print("imported")
"""


def test_the_emulator_needs_none_of_azures_libraries():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "imported\n", done.stderr
