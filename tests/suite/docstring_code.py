"""Code that a docstring shows, to be run as it stands."""

from __future__ import annotations

import textwrap
from types import ModuleType


def shown_code(module: ModuleType) -> str:
    """The indented lines of the module's docstring, blank ones between them included."""
    lines = (module.__doc__ or "").splitlines()
    indented = [number for number, line in enumerate(lines) if line.startswith("    ")]
    return textwrap.dedent("\n".join(lines[indented[0] : indented[-1] + 1]))
