"""Goes into `.waa-client` as sitecustomize: what WAA's client imports and no test plays, and pauses that are shorter.

A stub can be imported, and raises where it is used. WAA's own pauses add up to half a minute for each task, for a Windows that
is not there.
"""

import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

STUBS = {
    "LnkParse3", "PyPDF2", "acoustid", "borb", "cv2", "easyocr", "fastdtw", "fitz", "formulas", "imagehash", "librosa", "matplotlib",
    "mutagen", "odf", "pdfplumber", "playwright", "pptx", "py7zr", "pydrive", "pypdf", "scipy", "skimage", "tiktoken",
}  # fmt: skip
PAUSES = 0.02


class Stub:
    """Anything; raises where it is called."""

    def __init__(self, *_args, **_kwargs):
        raise RuntimeError("this package is a stub: scripts/waa-client leaves it out")


class Colours:
    """The one thing of matplotlib that navi needs."""

    def by_key(self):
        return {"color": ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"]}


class Finder(MetaPathFinder, Loader):
    """Finds the stubs, and any module in them."""

    def find_spec(self, name, _path=None, _target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in STUBS else None

    @staticmethod
    def _attribute(name):
        if name == "pyplot":
            raise AttributeError(name)  # so that it is looked for as a module
        return Stub

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = self._attribute
        if module.__name__ == "matplotlib.pyplot":
            vars(module)["rcParams"] = {"axes.prop_cycle": Colours()}


sys.meta_path.append(Finder())
_sleep = time.sleep
time.sleep = lambda seconds: _sleep(float(seconds) * PAUSES)
