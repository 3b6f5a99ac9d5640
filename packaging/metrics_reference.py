#!/usr/bin/env python3
"""Writes the tables of series in docs/operating/metrics.md anew, from the catalogue of the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledgermq.observer.metrics.series import CATALOG

DOCUMENT = Path(__file__).parents[1] / "docs" / "operating" / "metrics.md"
HEADLINE = "## Series\n"


def table() -> Iterator[str]:
    """Lines of the table."""
    yield "| series | type | labels | what it is |"
    yield "|---|---|---|---|"
    for name, series in CATALOG.items():
        labels = ", ".join(f"`{label}`" for label in series.labels)
        yield f"| `{name}` | {series.kind.value} | {labels} | {series.help} |"


def main() -> None:
    """Replace what stands behind the last headline."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, headline, _ = text.partition(HEADLINE)
    assert headline, f"{DOCUMENT} lacks {HEADLINE.strip()}"
    DOCUMENT.write_text(f"{before}{headline}\n" + "\n".join(table()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
