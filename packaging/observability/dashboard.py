#!/usr/bin/env python3
"""Writes the dashboard for Grafana, ``grafana/ledgermq.json``, from the panels below.

It asks for a data source of Prometheus', and lets its reader choose cluster, broker and node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

BOARD = Path(__file__).resolve().parent / "grafana" / "ledgermq.json"

_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 24
_DATA = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39
"""Of Grafana 10.4 and later; later ones read it."""

_NODE = '{job="$job",instance=~"$instance"}'


class Panel(NamedTuple):
    """One panel.

    Attributes:
        asks: a legend each, and its expression; ``@`` behind a name is the choice of nodes.
        unit: one of Grafana's.
        kind: ``timeseries`` or ``stat``.
    """

    title: str
    unit: str
    asks: dict[str, str]
    kind: str = "timeseries"


def quantiles(name: str) -> dict[str, str]:
    """Two of a histogram, by node."""
    return {
        f"p{part} {{{{instance}}}}": f"histogram_quantile({int(part) / 100:g},"
        f" sum by (instance, le) (rate({name}_bucket@[$__rate_interval])))"
        for part in ("50", "99")
    }


def rate(*names: str, by: str = "instance") -> dict[str, str]:
    """Rates of counters; with more than one, the legend says which."""
    return {
        ("" if len(names) == 1 else f"{name.split('_', 2)[2].removesuffix('_total')} ")
        + f"{{{{{by}}}}}": f"sum by ({by}) (rate({name}@[$__rate_interval]))"
        for name in names
    }


ROWS: dict[str, tuple[Panel, ...]] = {
    "The group": (
        Panel("Nodes that serve", "short", {"": "sum(ledgermq_ready@)"}, "stat"),
        Panel("Who leads", "short", {"{{instance}}": "ledgermq_leads@ == 1"}, "stat"),
        Panel(
            "Why a node does not serve", "short",
            {"{{instance}} {{code}}": "ledgermq_not_ready_reason@"},
        ),
        Panel("Term", "short", {"{{instance}}": "ledgermq_raft_term@"}),
        Panel("Majority heard of last", "s",
              {"{{instance}}": "ledgermq_raft_majority_age_seconds@"}),
        Panel("Members behind", "s", {"{{member}}": "ledgermq_member_behind_seconds@"}),
        Panel("Members behind, bytes", "bytes", {"{{member}}": "ledgermq_member_behind_bytes@"}),
        Panel("Members silent", "s", {"{{member}}": "ledgermq_member_silent_seconds@"}),
        Panel("Elections", "short",
              {"{{instance}}": "increase(ledgermq_raft_elections_total@[$__rate_interval])"}),
    ),
    "Producers": (
        Panel("Messages in", "cps", rate("ledgermq_writer_messages_total")),
        Panel("Bytes in", "Bps", rate("ledgermq_writer_bytes_total")),
        Panel("Acknowledgements take", "s", quantiles("ledgermq_acknowledgement_seconds")),
        Panel("Refused", "cps", rate(
            "ledgermq_writer_refused_total", "ledgermq_writer_denied_total",
            "ledgermq_writer_throttled_total",
        )),
        Panel("Sessions", "short", {"{{instance}}": "ledgermq_writer_sessions@"}),
        Panel("Greatest topics, messages in", "cps", {
            "{{topic}}": "topk(10, max by (topic)"
            " (rate(ledgermq_topic_messages_total@[$__rate_interval])))",
        }),
    ),
    "Consumers": (
        Panel("Messages out", "cps", rate("ledgermq_broker_messages_total")),
        Panel("Bytes out", "Bps", rate("ledgermq_broker_bytes_total")),
        Panel("Members of groups", "short", {
            "{{instance}}": "sum by (instance) (ledgermq_broker_members@)",
        }),
        Panel("Greatest lags", "short", {
            "{{group}} {{topic}}": "topk(10, max by (group, topic)"
            " (ledgermq_consumer_lag_messages@))",
        }),
        Panel("Greatest lags, age", "s", {
            "{{group}} {{topic}}": "topk(10, max by (group, topic)"
            " (ledgermq_consumer_lag_seconds@))",
        }),
        Panel("Refused", "cps", rate(
            "ledgermq_broker_refused_total", "ledgermq_broker_denied_total",
            "ledgermq_broker_throttled_total",
        )),
    ),
    "Services": (
        Panel("Given back, dead", "cps", rate(
            "ledgermq_broker_messages_retried_total", "ledgermq_broker_messages_dead_total",
        )),
        Panel("Waiting", "short", {
            "delayed {{instance}}": "sum by (instance) (ledgermq_broker_delayed_waiting@)",
            "timers {{instance}}": "sum by (instance) (ledgermq_broker_timers_waiting@)",
            "half {{instance}}": "sum by (instance) (ledgermq_broker_half_messages_waiting@)",
        }),
        Panel("Transactions", "cps", rate(
            "ledgermq_broker_transactions_committed_total",
            "ledgermq_broker_transactions_rolled_back_total",
            "ledgermq_broker_transactions_checked_total",
        )),
    ),
    "Log and disk": (
        Panel("Syncs take", "s", quantiles("ledgermq_sync_seconds")),
        Panel("Put lock held", "s", quantiles("ledgermq_put_lock_hold_seconds")),
        Panel("Free", "bytes", {"{{instance}}": "ledgermq_disk_free_bytes@"}),
        Panel("Not durable, committed, dispatched", "bytes", {
            "not durable {{instance}}": "ledgermq_log_not_durable_bytes@",
            "not committed {{instance}}": "ledgermq_log_not_committed_bytes@",
            "not dispatched {{instance}}": "ledgermq_log_not_dispatched_bytes@",
        }),
        Panel("Damaged places", "short", {
            "{{instance}}": "sum by (instance) (ledgermq_damaged_places@)",
        }),
        Panel("Scrubbed", "Bps", rate("ledgermq_raft_scrubbed_bytes_total")),
        Panel("Log", "bytes", {
            "{{instance}}": 'ledgermq_log_position_bytes{job="$job",instance=~"$instance",'
            'cursor="written"} - on (instance) ledgermq_log_begin_bytes@',
        }),
        Panel("Retention waits for", "short", {
            "{{instance}} {{by}}": 'ledgermq_retention_held{job="$job",instance=~"$instance",'
            'by!="nobody"} == 1',
        }),
        Panel("Since the last backup", "s", {
            "{{instance}}": "time() - ledgermq_backup_timestamp_seconds@",
        }),
    ),
    "Processes": (
        Panel("Processor", "percentunit", {
            "{{instance}} {{process}}":
            "rate(ledgermq_process_cpu_seconds_total@[$__rate_interval])",
        }),
        Panel("Memory", "bytes", {
            "{{instance}} {{process}}": "ledgermq_process_proportional_bytes@",
        }),
        Panel("Starts", "short", {
            "{{instance}} {{process}}":
            "increase(ledgermq_process_starts_total@[$__rate_interval])",
        }),
        Panel("Open files", "short", {
            "{{instance}} {{process}}": "ledgermq_process_open_files@",
        }),
        Panel("Sign of life", "s", {
            "{{instance}} {{process}}": "ledgermq_process_beat_age_seconds@",
        }),
        Panel("Scrapes take", "s", {"{{instance}}": "ledgermq_scrape_duration_seconds@"}),
    ),
}  # fmt: skip


def expression(ask: str) -> str:
    """An expression as Grafana gets it."""
    return ask.replace("@", _NODE)


def _choice(name: str, query: str, *, several: bool) -> dict[str, object]:
    return {
        "name": name,
        "type": "query",
        "datasource": _DATA,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "current": {"text": "All", "value": "$__all"} if several else {},
        "options": [],
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, object]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _DATA,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATA,
                "expr": expression(ask),
                "legendFormat": legend or "__auto",
            }
            for index, (legend, ask) in enumerate(panel.asks.items())
        ],
    }


def board() -> dict[str, object]:
    """The dashboard."""
    panels: list[dict[str, object]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False,
                       "gridPos": place, "panels": []})  # fmt: skip
        y += 1
        for index, panel in enumerate(row):
            x = index * _WIDTH % _COLUMNS
            y += _HEIGHT if index and not x else 0
            panels.append(_panel(len(panels) + 1, panel, x, y))
        y += _HEIGHT
    return {
        "uid": "ledgermq",
        "title": "LedgerMQ",
        "tags": ["ledgermq"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus",
                 "current": {}, "options": [], "refresh": 1},
                _choice("job", "label_values(ledgermq_build_info, job)", several=False),
                _choice("instance", 'label_values(ledgermq_build_info{job="$job"}, instance)',
                        several=True),
            ]
        },
        "annotations": {"list": []},
        "panels": panels,
    }  # fmt: skip


def text() -> str:
    """The content of the file."""
    return json.dumps(board(), indent=1) + "\n"


def main() -> None:
    """Write it anew."""
    BOARD.parent.mkdir(exist_ok=True)
    BOARD.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
