"""Parsing Python's own text, whatever else the process does meanwhile."""

from __future__ import annotations

import ast
import gc


def parsed(text: str) -> ast.Module:
    """The tree of a module's text.

    CPython before 3.11.5 counts the depth of all trees in one place: one that is made while another
    is being made fails that with "AST constructor recursion depth mismatch". The collector of
    cycles makes them do so, since what it runs may print a traceback, and that parses its lines.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_enabled:
            gc.enable()
