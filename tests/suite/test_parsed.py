"""A text is parsed although the collector of cycles has another one parsed in the midst of it."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

from tests.suite.parsed import parsed

TEXT = Path(__file__).with_name("test_plugin.py").read_text()


def test_what_the_collector_has_parsed_disturbs_nobody() -> None:
    during: list[str] = []

    def parse_another(phase: str, info: object) -> None:
        del info
        during.append(phase)
        ast.parse("(\n1\n)")

    gc.callbacks.append(parse_another)
    try:
        trees = [parsed(TEXT) for _ in range(5)]
        gc.collect()
    finally:
        gc.callbacks.remove(parse_another)

    assert during and {ast.dump(tree) for tree in trees} == {ast.dump(trees[0])}
    assert gc.isenabled()
