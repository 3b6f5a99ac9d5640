"""The catalogue of ``/metrics``: every counter, names by Prometheus' conventions, the document."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ledgermq.ipc.counters import COUNTER_NAMES
from ledgermq.ipc.cursor_page import PORTS, Role
from ledgermq.observer.metrics.counter_help import COUNTER_HELP, SUPERVISOR_HELP
from ledgermq.observer.metrics.node_series import expiry_s
from ledgermq.observer.metrics.samples import Exposition, Samples
from ledgermq.observer.metrics.series import CATALOG, SeriesKind

DOCUMENT = Path(__file__).parents[3] / "docs" / "operating" / "metrics.md"


def test_every_counter_of_the_page_has_its_series() -> None:
    told = {
        role: tuple(counter.name.lower() for counter in helps)
        for role, helps in COUNTER_HELP.items()
    }
    told[Role.SUPERVISOR] = tuple(name for name, _ in SUPERVISOR_HELP)

    assert told == {role: names for role, names in COUNTER_NAMES.items() if role not in PORTS}


def test_counters_alone_end_with_total_and_no_help_is_missing() -> None:
    for name, series in CATALOG.items():
        assert name.endswith("_total") == (series.kind is SeriesKind.COUNTER), name
        assert series.help and not series.help.endswith("."), name
        assert re.fullmatch(r"(ledgermq|rocketmq)_[a-z0-9_]+", name), name


def test_the_document_lists_every_series_with_its_help() -> None:
    told = dict(re.findall(r"^\| `([a-z0-9_]+)` \| (.*) \|$", DOCUMENT.read_text(), re.M))
    expected = {}
    for name, series in CATALOG.items():
        labels = ", ".join(f"`{label}`" for label in series.labels)
        expected[name] = f"{series.kind.value} | {labels} | {series.help}"

    assert told == expected


def test_what_no_label_can_break() -> None:
    samples = Samples()
    hostile = 'a"} 1\nledgermq_ready 9\\'
    samples.put("ledgermq_topic_messages_total", 3, hostile)
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        text = Exposition().encode(samples, accept)[0].decode()
        (line,) = [one for one in text.splitlines() if not one.startswith("#")]

        assert line == ('ledgermq_topic_messages_total{topic="a\\"} 1\\nledgermq_ready 9\\\\"} 3.0')


@pytest.mark.parametrize("days", [2, 20_000])
def test_a_certificate_ends_when_openssl_says(tmp_path: Path, days: int) -> None:
    made = tmp_path / "node.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", str(days), "-subj", "/CN=node", "-keyout", "/dev/null", "-out",
         str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(made), "-noout", "-enddate", "-dateopt", "iso_8601"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    wanted = subprocess.run(
        ["date", "-d", shown.strip().partition("=")[2], "+%s"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip

    assert expiry_s(made) == float(wanted)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no certificate",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n\xff\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_has_no_end(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(content)

    assert expiry_s(path) is None
    assert expiry_s(tmp_path / "missing") is None
