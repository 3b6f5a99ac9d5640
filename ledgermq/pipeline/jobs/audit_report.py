"""Audit report: a table as Parquet, everything as JSON, and a page with pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.jobs.audit_job import Audit, AuditedReplica, Fault
from ledgermq.pipeline.jobs.html_page import html_page, html_table
from ledgermq.pipeline.jobs.log_digests import StretchState
from ledgermq.pipeline.jobs.svg_plots import WIDTH
from ledgermq.store.files.small_file import replace_file

TABLE_SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("kind", pa.string()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("file", pa.string()),
        ("what", pa.string()),
        ("remedy", pa.string()),
        ("findings", pa.int32()),
    ]
)

_HEIGHT = 28
_COLOURS = {
    StretchState.GOOD: "#3a9d5d",
    StretchState.DELETED: "#d9d9d9",
    StretchState.MISSING: "#e0a030",
    StretchState.DIVERGENT: "#c8322b",
}


def write_report(audit: Audit, folder: Path) -> list[Path]:
    """Write ``faults.parquet``, ``audit.json`` and ``audit.html`` into ``folder``; their paths.

    Raises:
        StorageError: the operating system refused.
    """
    paths = [folder / name for name in ("faults.parquet", "audit.json", "audit.html")]
    rows = [fault._asdict() for fault in audit.faults]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=TABLE_SCHEMA), str(paths[0]))
    except OSError as error:
        raise StorageError(
            "report not written", errno=error.errno, file=str(paths[0]), reason=str(error)
        ) from error
    replace_file(paths[1], json.dumps(audit_as_json(audit), indent=1, default=str).encode())
    replace_file(paths[2], audit_as_html(audit).encode())
    return paths


def audit_as_json(audit: Audit) -> dict[str, object]:
    """Everything that was found; ranges of the log are ``[first, end, state]``."""
    return {
        "first": audit.first,
        "end": audit.end,
        "stretch": audit.grid,
        "replicas": [
            {
                "name": replica.name,
                "directory": str(replica.root),
                "ranges": [[first, end, str(state)] for first, end, state in replica.ranges],
                **_counts(replica),
            }
            for replica in audit.replicas
        ],
        "faults": [fault._asdict() for fault in audit.faults],
    }


def audit_as_html(audit: Audit) -> str:
    """One page without anything from elsewhere."""
    verdict = (
        "All replicas are the same, and whole."
        if not audit.faults
        else f"{len(audit.faults)} {'fault' if len(audit.faults) == 1 else 'faults'}."
    )
    keys = "".join(
        f'<i style="background:{colour}"></i>{state.value}' for state, colour in _COLOURS.items()
    )
    pictures = "".join(_picture(audit, replica) for replica in audit.replicas)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return html_page(
        "Audit of a group",
        f"<h1>Audit of {len(audit.replicas)} replicas</h1>"
        f"<p>{now}; positions {audit.first:,} to {audit.end:,}, in stretches of"
        f" {audit.grid:,} bytes. <b>{verdict}</b></p><p>{keys}</p>{pictures}"
        f"<h2>Faults</h2>{_table(audit.faults)}",
    )


def _picture(audit: Audit, replica: AuditedReplica) -> str:
    """The replica's log from left to right; what is wrong is at least two points wide."""
    span = max(1, audit.end - audit.first)
    bars: list[str] = []
    # Faults last: they must not be covered by what is good.
    for first, end, state in sorted(
        replica.ranges, key=lambda one: one.state is not StretchState.GOOD
    ):
        x = (first - audit.first) * WIDTH / span
        width = max((end - first) * WIDTH / span, 0.2 if state is StretchState.GOOD else 2)
        bars.append(
            f'<rect x="{min(x, WIDTH - width):.2f}" width="{width:.2f}" height="{_HEIGHT}"'
            f' fill="{_COLOURS[state]}"><title>{state.value}: {first:,} to {end:,}</title></rect>'
        )
    checked = replica.checked
    derived = sum(fault.replica == replica.name and bool(fault.file) for fault in audit.faults)
    marks = f"; {derived} faults beside the log's ranges" if derived else ""
    return (
        f"<h3>{escape(replica.name)}</h3><div>{checked.records:,} records,"
        f" {checked.units:,} units in {checked.queues:,} queues, {checked.keys:,} keys{marks}</div>"
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" width="{WIDTH}" height="{_HEIGHT}"'
        f' role="img" aria-label="log of {escape(replica.name)}">{"".join(bars)}</svg>'
    )


def _table(faults: Iterable[Fault]) -> str:
    heads = ("replica", "kind", "from", "to", "file", "what", "what to do")
    columns = ("replica", "kind", "first", "end", "file", "what", "remedy")
    return html_table(heads, ([getattr(fault, name) for name in columns] for fault in faults))


def _counts(replica: AuditedReplica) -> dict[str, object]:
    checked = replica.checked
    return {name: getattr(checked, name) for name in checked.__slots__ if name != "findings"}
