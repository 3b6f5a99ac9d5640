"""How long the tests took when that was last measured: ``tests/durations.json``.

    make durations        the whole suite, on a quiet machine; writes the file

It holds seconds by file and test function, all its cases together; what took less than
``SHORT_S`` stands together under ``""``. A test that is not in it is taken for a short one,
but for files that say ``slow`` (``order``).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

KEPT = Path(__file__).parents[1] / "durations.json"
SHORT_S = 0.5
UNKNOWN_S = 0.02


def function_of(nodeid: str) -> tuple[str, str]:
    """File and function of a test; cases of one function share it."""
    file, _, name = nodeid.partition("::")
    return file, name.partition("[")[0]


class Durations:
    """Seconds by file and function."""

    def __init__(self, seconds: Mapping[str, Mapping[str, float]]) -> None:
        self._seconds = seconds

    @classmethod
    def kept(cls, path: Path = KEPT) -> Durations:
        """Those of the tree; none if the file is not there."""
        return cls(json.loads(path.read_text()) if path.exists() else {})

    def of_file(self, file: str) -> float:
        """All tests of a file together; 0 if it is not known."""
        return sum(self._seconds.get(file, {}).values())

    def files(self, folder: str) -> list[str]:
        """Those below a folder."""
        return [file for file in self._seconds if file.startswith(folder)]

    def of_function(self, nodeid: str) -> float:
        """All cases of a test."""
        return self.known(nodeid) or UNKNOWN_S

    def known(self, nodeid: str) -> float | None:
        """The same; None if it is not known, or was a short one."""
        file, function = function_of(nodeid)
        return self._seconds.get(file, {}).get(function)


def write(taken: Mapping[str, float], left_out: Collection[str], path: Path = KEPT) -> None:
    """Keep what each test took, by its id. Of one that was left out the last time stays, if it is
    still there."""
    before = Durations.kept(path)
    functions: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for nodeid in left_out:
        file, function = function_of(nodeid)
        functions[file][function] = before.known(nodeid) or 0.0
    fresh = {function_of(nodeid) for nodeid in taken if nodeid not in left_out}
    for file, function in fresh:
        functions[file][function] = 0.0
    for nodeid in taken:
        file, function = function_of(nodeid)
        if (file, function) in fresh:
            functions[file][function] += taken[nodeid]
    kept = {}
    for file, of_file in sorted(functions.items()):
        long = {name: round(s, 1) for name, s in sorted(of_file.items()) if s >= SHORT_S}
        rest = sum(s for s in of_file.values() if s < SHORT_S)
        kept[file] = long | ({"": round(rest, 1)} if rest >= 0.05 else {})
    path.write_text(json.dumps({k: v for k, v in kept.items() if v}, indent=1) + "\n")
