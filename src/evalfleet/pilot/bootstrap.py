"""Brings the pilot to a node and becomes it: the start command of a job. Not part of the zipapp.

It stands in a command line, so it uses no single quotes. The program and the wheels of `cryptography` come from the box; their sums
are in the command line, so that only the controller decides what runs here.
"""

import hashlib
import io
import os
import sys
import tempfile
import urllib.request
import zipfile

FOLDER = os.path.join(tempfile.mkdtemp(prefix="evalfleet-"), "")


def fetch(name: str, wanted: str) -> bytes:
    base, mark, query = os.environ["EVALFLEET_PILOT_BOX"].partition("?")
    if base.startswith("http"):
        with urllib.request.urlopen(base + "/program/" + name + mark + query, timeout=300) as answer:
            data = answer.read()
    else:
        with open(os.path.join(base, "program", name), "rb") as file:
            data = file.read()
    if hashlib.sha256(data).hexdigest() != wanted:
        sys.exit("evalfleet: " + name + " in the box is not what the controller put there")
    return data


def main() -> None:
    program, wheels, *words = sys.argv[1:]
    path = [one for one in [os.environ.get("PYTHONPATH", "")] if one]
    try:
        __import__("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:
        with zipfile.ZipFile(io.BytesIO(fetch("wheels.zip", wheels))) as archive:
            for name in archive.namelist():
                with zipfile.ZipFile(io.BytesIO(archive.read(name))) as wheel:
                    wheel.extractall(FOLDER + "wheels")
        path.append(FOLDER + "wheels")
    with open(FOLDER + "pilot.pyz", "wb") as file:
        file.write(fetch("pilot.pyz", program))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path))
    os.execve(sys.executable, [sys.executable, FOLDER + "pilot.pyz", *words], environment)


main()
