r"""Unpaired surrogates: JSON may name half of a character (``\ud800``), which UTF-8 cannot hold."""

from __future__ import annotations

import json


def may_be_cut(text: str) -> bool:
    """Whether JSON names a surrogate, be it one of a pair; cheap, and seldom true."""
    return "\\ud" in text or "\\uD" in text


def whole(found: object) -> object:
    """What JSON said, with a question mark for each half of a character, as Java writes them.

    Raises:
        RecursionError: it is nested too deep.
    """
    content = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return json.loads(content.encode(errors="replace"))
