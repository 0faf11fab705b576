"""The zipapp: the same bytes for the same source, fit for old Pythons, made of the standard library."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

from evalfleet.runner import build as building
from evalfleet.runner.build import build, sources

RUNNER = Path(building.__file__).parent


def test_bytes_are_the_same_each_time(monkeypatch) -> None:
    first, version = build()
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    for path in RUNNER.glob("*.py"):
        assert os.stat(path).st_mtime > 0  # whatever it is, it is not in the archive
    build.cache_clear()
    second, again = build()
    assert first == second
    assert version == again == hashlib.sha256(first).hexdigest()[:12]


def test_archive_is_sorted_and_plain() -> None:
    archive = zipfile.ZipFile(io.BytesIO(build()[0]))
    names = archive.namelist()
    assert names == sorted(names)
    assert "__main__.py" in names
    assert not any("build.py" in name for name in names)
    assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_sources_parse_as_python_3_8() -> None:
    for name, content in sources().items():
        ast.parse(content, name, feature_version=(3, 8))


def test_only_the_standard_library() -> None:
    for name, content in sources().items():
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                roots = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                roots = [(node.module or "").split(".")[0]]
            else:
                continue
            for root in roots:
                assert root in sys.stdlib_module_names or root == building.PACKAGE, (name, root)
