"""The settings that every new desktop has: nothing moves by itself, and there is one screen."""

from __future__ import annotations

import re
from pathlib import Path

_GTK = """[Settings]
gtk-enable-animations=false
gtk-cursor-blink=false
gtk-recent-files-max-age=0
"""
_OPENBOX = Path("/etc/xdg/openbox/rc.xml")
# One screen instead of four, and none of the keys that start programs or move windows between screens.
_OPENBOX_CHANGES = {
    r"<number>\d+</number>": "<number>1</number>",
    r"(?s)<keyboard>.*</keyboard>": """<keyboard>
  <keybind key="A-F4"><action name="Close"/></keybind>
  <keybind key="A-Tab"><action name="NextWindow"/></keybind>
</keyboard>""",
}


def files() -> dict[str, str]:
    """Return the files of a new home. The window manager's are made of the system's, where that has any."""
    found = {".config/gtk-3.0/settings.ini": _GTK}
    if _OPENBOX.exists():
        text = _OPENBOX.read_text("utf-8")
        for pattern, replacement in _OPENBOX_CHANGES.items():
            text = re.sub(pattern, replacement, text)
        found[".config/openbox/rc.xml"] = text
    return found
