"""What was left out, by its reason: one paragraph for each, with how many tests and where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

FILES_MAX = 6


def by_reason(reports: Iterable[Any]) -> dict[str, Counter[str]]:
    """How many tests of which file were skipped, by the reason that they gave."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found[reason.removeprefix("Skipped: ")][report.nodeid.partition("::")[0]] += 1
    return found


def lines(found: dict[str, Counter[str]]) -> Iterator[str]:
    """What to print: the reason that left out most comes first."""
    for reason, files in sorted(found.items(), key=lambda item: -item[1].total()):
        yield f"{files.total():5d}  {reason}"
        shown = [f"{file} ({count})" for file, count in files.most_common(FILES_MAX)]
        if len(files) > FILES_MAX:
            shown.append(f"{len(files) - FILES_MAX} more files")
        yield f"       {', '.join(shown)}"
