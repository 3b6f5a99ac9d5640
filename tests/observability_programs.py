"""The programs of ``packaging/observability``, which are no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "packaging" / "observability"


def load(name: str) -> ModuleType:
    """One of them, as Python that runs it has it."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
