#!/usr/bin/env python3
"""Writes ``ledgermq.rules.yml`` and the sections of docs/operating/alerts.md, from ``alert_list``.

alert_rules.py                      both anew
alert_rules.py --print [OPTIONS]    the rules, to stdout: with other links, another job's name, or
                                    with all times shorter, to see alerts raised
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from alert_list import ALERTS, GROUPS, Alert

HERE = Path(__file__).resolve().parent
RULES = HERE / "ledgermq.rules.yml"
DOCUMENT = HERE.parents[1] / "docs" / "operating" / "alerts.md"
HEADLINE = "## Alerts\n"
RUNBOOKS = "/usr/share/doc/ledgermq/operating/alerts.md"
"""Where Debian's package has the document; its own address is better, where there is one."""

_LINE = 110
_TIME_MIN_S, _WINDOW_MIN_S = 5, 15
"""Some scrapes of a second, also where what is looked at happens now and then."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_TIME = re.compile(r"(\[?)\$(age)?(\d+)([dhms])")


class Pace(NamedTuple):
    """By which times are divided: those of what happens, and those of what is made by the day."""

    times: float = 1
    ages: float = 1


def duration(seconds: float) -> str:
    """As Prometheus writes it: of the largest unit that fits."""
    whole = round(seconds)
    unit = next((name for name, size in _UNITS.items() if whole and whole % size == 0), "s")
    return f"{whole // _UNITS[unit]}{unit}"


def expression(alert: Alert, pace: Pace) -> str:
    """The alert's expression as Prometheus reads it."""

    def replaced(match: re.Match[str]) -> str:
        bracket, age, number, unit = match.groups()
        whole = int(number) * _UNITS[unit]
        least_s = _WINDOW_MIN_S if bracket else _TIME_MIN_S
        seconds = max(whole / (pace.ages if age else pace.times), least_s)
        if bracket:
            return f"[{duration(seconds)}"
        return f"{seconds:g}" if seconds < 1_000_000 else str(round(seconds))

    return _TIME.sub(replaced, alert.expr)


def wait(alert: Alert, pace: Pace) -> str:
    """For how long it has to hold."""
    seconds = int(alert.wait[:-1]) * _UNITS[alert.wait[-1]]
    return duration(seconds / (pace.ages if alert.waits_by_age else pace.times))


def rules(pace: Pace, *, job: str, runbooks: str) -> Iterator[str]:
    """Lines of the file of rules; strings are JSON's, which YAML reads."""
    yield "# Made by packaging/observability/alert_rules.py, of alert_list.py."
    yield "groups:"
    for group, alerts in GROUPS.items():
        yield f"  - name: ledgermq-{group}"
        yield "    rules:"
        for alert in alerts:
            expr = expression(alert, pace).replace('job="ledgermq"', f'job="{job}"')
            yield f"      - alert: {alert.name}"
            yield f"        expr: {json.dumps(expr)}"
            yield f"        for: {wait(alert, pace)}"
            yield "        labels:"
            yield f"          severity: {alert.severity.value}"
            yield "        annotations:"
            yield f"          summary: {json.dumps(alert.summary)}"
            yield f"          description: {json.dumps(alert.description)}"
            yield f"          runbook_url: {json.dumps(f'{runbooks}#{alert.anchor}')}"


def sections() -> Iterator[str]:
    """Lines of the document's sections."""
    for alert in ALERTS:
        yield f"### {alert.title}"
        yield ""
        after = "" if alert.wait == "0s" else f", after {alert.wait}"
        yield f"`{alert.name}`, {alert.severity.value}{after}:"
        yield ""
        yield "```text"
        yield from _broken(expression(alert, Pace()), " ")
        yield "```"
        yield ""
        yield from _broken(alert.todo, "")
        yield ""


def _broken(text: str, indent: str) -> Iterator[str]:
    """Lines of at most so many characters, broken at spaces."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > _LINE:
            yield line
            line = f"{indent}{word}"
        else:
            line = f"{line} {word}" if line else word
    yield line


def document() -> str:
    """The document, with the sections as they are now."""
    before, headline, _ = DOCUMENT.read_text(encoding="utf-8").partition(HEADLINE)
    assert headline, f"{DOCUMENT} lacks {HEADLINE.strip()}"
    return f"{before}{headline}\n" + "\n".join(sections()).rstrip("\n") + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Prometheus' rules for LedgerMQ")
    parser.add_argument("--print", action="store_true", help="print the rules, write nothing")
    parser.add_argument("--job", default="ledgermq", help="name of the scrape job")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address of docs/operating/alerts.md")
    parser.add_argument("--hasten", type=float, default=1, help="divide times by this")
    parser.add_argument("--hasten-ages", type=float, default=1, help="and ages by this")
    words = parser.parse_args()
    pace = Pace(words.hasten, words.hasten_ages)
    text = "\n".join(rules(pace, job=words.job, runbooks=words.runbooks)) + "\n"
    if words.print:
        sys.stdout.write(text)
        return
    RULES.write_text(text, encoding="utf-8")
    DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
