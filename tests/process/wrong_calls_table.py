"""Program: what each wrong call of ``test_wrong_calls.py`` is told, and after how long, as a table.

    python -m tests.process.wrong_calls_table >wrong-calls.md

For who reads the texts as a beginner does, without the code beside them: the longest wait comes
first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.process.test_wrong_calls import WRONG, Place, place_made


def told(place: Place) -> Iterator[tuple[float, str, str, str]]:
    """Seconds, call, error and text of each."""
    for name, wrong in WRONG.items():
        began = time.monotonic()
        try:
            wrong.call(place)
        except wrong.kind as error:
            yield time.monotonic() - began, name, type(error).__name__, str(error)
        else:
            raise AssertionError(f"{name}: nothing was refused")


def main() -> None:
    """Make a node, call, print."""
    with place_made() as place:
        rows = sorted(told(place), reverse=True)
    load = os.getloadavg()[0]
    print(f"{len(rows)} wrong calls; load {load:.1f} behind them, on {os.cpu_count()} cores.\n")
    print("| seconds | call | error | its text |")
    print("|---|---|---|---|")
    for seconds, name, kind, text in rows:
        shown = text.replace("|", "\\|").replace("\n", " ")
        print(f"| {seconds:.2f} | {name} | {kind} | {shown[:240]} |")


if __name__ == "__main__":
    main()
