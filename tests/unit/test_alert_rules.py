"""Prometheus' rules: each alert is raised by what it is for, and by nothing less."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledgermq.observer.metrics.series import CATALOG, SeriesKind
from tests.observability_programs import FOLDER, load

alerts: Any = load("alert_list").ALERTS
alert_rules: Any = load("alert_rules")

ROOT = FOLDER.parents[1]
OPERATING = ROOT / "docs" / "operating"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="Debian's prometheus has promtool"
)

HERE = 'job="ledgermq",instance="a"'
BROKER = f'{HERE},process="broker"'
NODE = {
    f'ledgermq_node_info{{{HERE},cluster="c",broker="b",group="g",node="n0"}}': "1+0x2000",
    f"ledgermq_leads{{{HERE}}}": "1+0x2000",
}
"""A node that leads."""

LEADS = f"ledgermq_leads{{{HERE}}}"
LAG_OF_MIRROR = f"ledgermq_raft_mirror_lag_seconds{{{HERE}}}"

SEALED = f'ledgermq_cold_sealed_position{{{HERE},process="cold"}}'
COMMITTED = f'ledgermq_log_position_bytes{{{HERE},cursor="committed"}}'

FAILED_RECEIPTS = f'ledgermq_receipts_failed_total{{{HERE},process="receipts"}}'
HURRIED_RECEIPTS = f'ledgermq_receipts_hurried_total{{{HERE},process="receipts"}}'

DAYS = "1h"
LAG = f'{HERE},group="billing",topic="orders"'
BUCKETS = ("0.1", "1", "10", "+Inf")


def buckets(name: str, *counts: int) -> dict[str, str]:
    """A histogram that grows by ``counts`` (of each bucket and those below) each minute."""
    return {
        f'ledgermq_{name}_seconds_bucket{{{HERE},le="{bound}"}}': f"0+{count}x200"
        for bound, count in zip(BUCKETS, counts, strict=True)
    }


Given = dict[str, str]

CASES: dict[str, tuple[Given, Given]] = {
    "NoMajority": (
        {f'ledgermq_not_ready_reason{{{HERE},code="no_majority"}}': "1+0x60"},
        {f'ledgermq_not_ready_reason{{{HERE},code="disk_full"}}': "1+0x60"},
    ),
    "NoLeader": (
        {**NODE, LEADS: "0+0x60", LAG_OF_MIRROR: "0+0x60"},
        {**NODE, LEADS: "0+0x60", LAG_OF_MIRROR: "1+0x60"},
    ),
    "NodeDown": ({f"up{{{HERE}}}": "0+0x60"}, {f"up{{{HERE}}}": "1+0x60"}),
    "NodeNotReady": (
        {f"ledgermq_ready{{{HERE}}}": "0+0x60"},
        {f"ledgermq_ready{{{HERE}}}": "0 1+0x60"},
    ),
    "NodeRestarts": (
        {f"ledgermq_start_time_seconds{{{HERE}}}": "0 0 100 200 300 300+0x60"},
        {f"ledgermq_start_time_seconds{{{HERE}}}": "0 0 100 200+0x60"},
    ),
    "ProcessRestarts": (
        {f"ledgermq_process_starts_total{{{BROKER}}}": "1+0x47 2 3 4 4+0x20"},
        {f"ledgermq_process_starts_total{{{BROKER}}}": "1+0x40 2+0x20"},
    ),
    "PlainKernels": (
        {f"ledgermq_kernels_compiled{{{HERE}}}": "0+0x60"},
        {f"ledgermq_kernels_compiled{{{HERE}}}": "1+0x60"},
    ),
    "ElectionsTooMany": (
        {f"ledgermq_raft_elections_total{{{HERE}}}": "0+1x60"},
        {f"ledgermq_raft_elections_total{{{HERE}}}": "5+0x40 8+0x20"},
    ),
    "MemberSilent": (
        {f'ledgermq_member_silent_seconds{{{HERE},member="n1"}}': "0+60x60"},
        {f'ledgermq_member_silent_seconds{{{HERE},member="n1"}}': "29+0x60"},
    ),
    "MemberBehind": (
        {f'ledgermq_member_behind_seconds{{{HERE},member="n1"}}': "61+0x60"},
        {f'ledgermq_member_behind_seconds{{{HERE},member="n1"}}': "61+0x3 0+0x60"},
    ),
    "LeansOnWitness": (
        {f'ledgermq_raft_leans_on_witness{{{HERE},process="raft"}}': "1+0x60"},
        {f'ledgermq_raft_leans_on_witness{{{HERE},process="raft"}}': "1 0+0x60"},
    ),
    "MirrorBehind": ({LAG_OF_MIRROR: "301+0x60"}, {LAG_OF_MIRROR: "301 1+0x60"}),
    "ColdStorageAway": (
        {f'ledgermq_cold_away_since{{{HERE},process="cold"}}': "1700000000+0x60"},
        {f'ledgermq_cold_away_since{{{HERE},process="cold"}}': "1700000000+0x4 0+0x60"},
    ),
    "SealingStandsStill": (
        {SEALED: "500+0x400", COMMITTED: "600+1x400"},
        {SEALED: "0+10x400", COMMITTED: "600+10x400"},
    ),
    "ReceiptsNotMade": (
        {FAILED_RECEIPTS: "0+1x400"},
        {FAILED_RECEIPTS: "7+0x400"},
    ),
    "ReceiptsLate": (
        {HURRIED_RECEIPTS: "0+1x400"},
        {HURRIED_RECEIPTS: "7+0x400"},
    ),
    "VersionTooOld": (
        {f"ledgermq_broker_level_needed{{{BROKER}}}": "4+0x60"},
        {f"ledgermq_broker_level_needed{{{BROKER}}}": "0+0x60"},
    ),
    "TablesHeldUp": (
        {f"ledgermq_broker_tables_held_up{{{BROKER}}}": "1+0x60"},
        {f"ledgermq_broker_tables_held_up{{{BROKER}}}": "0+0x60"},
    ),
    "FeatureLevelWaits": (
        {**NODE, f"ledgermq_broker_level_to_enable{{{BROKER}}}": "4+0x400"},
        {**NODE, f"ledgermq_broker_level_to_enable{{{BROKER}}}": "4+0x100 0+0x400"},
    ),
    "DiskFull": (
        {f"ledgermq_disk_full{{{HERE}}}": "1+0x60"},
        {f"ledgermq_disk_full{{{HERE}}}": "0+0x60"},
    ),
    "DiskFillsUp": (
        {
            f"ledgermq_disk_free_bytes{{{HERE}}}": "4000-3x200",
            f"ledgermq_disk_size_bytes{{{HERE}}}": "10000+0x200",
        },
        {
            f"ledgermq_disk_free_bytes{{{HERE}}}": "3990-2x200",
            f"ledgermq_disk_size_bytes{{{HERE}}}": "10000+0x200",
        },
    ),
    "DiskSick": (
        {f"ledgermq_raft_disk_sick{{{HERE}}}": "1+0x60"},
        {f"ledgermq_raft_disk_sick{{{HERE}}}": "0+0x60"},
    ),
    "SyncSlow": (buckets("sync", 50, 95, 100, 100), buckets("sync", 995, 1000, 1000, 1000)),
    "AcknowledgementSlow": (
        buckets("acknowledgement", 0, 90, 100, 100),
        buckets("acknowledgement", 0, 100, 100, 100),
    ),
    "PutLockHeld": (
        {f"ledgermq_put_lock_held_seconds{{{HERE}}}": "6+0x60"},
        {f"ledgermq_put_lock_held_seconds{{{HERE}}}": "5+0x60"},
    ),
    "LogDamaged": (
        {
            f'ledgermq_damaged_places{{{HERE},repairable="yes"}}': "0+0x60",
            f'ledgermq_damaged_places{{{HERE},repairable="no"}}': "1+0x60",
        },
        {
            f'ledgermq_damaged_places{{{HERE},repairable="yes"}}': "0+0x60",
            f"ledgermq_raft_lacks_entries{{{HERE}}}": "0+0x60",
        },
    ),
    "DispatchBehind": (
        {f"ledgermq_log_not_dispatched_bytes{{{HERE}}}": "67108865+0x60"},
        {f"ledgermq_log_not_dispatched_bytes{{{HERE}}}": "67108864+0x60"},
    ),
    "ConsumerLagOld": (
        {**NODE, f"ledgermq_consumer_lag_seconds{{{LAG}}}": "0+60x60"},
        {**NODE, f"ledgermq_consumer_lag_seconds{{{LAG}}}": "900+0x60"},
    ),
    "ConsumerLagGrows": (
        {**NODE, f"ledgermq_consumer_lag_messages{{{LAG}}}": "1001+1x200"},
        {**NODE, f"ledgermq_consumer_lag_messages{{{LAG}}}": "9000-1x200"},
    ),
    "DeadLetters": (
        {f"ledgermq_broker_messages_dead_total{{{BROKER}}}": "3+0x50 4+0x60"},
        {f"ledgermq_broker_messages_dead_total{{{BROKER}}}": "3+0x60"},
    ),
    "TransactionsStuck": (
        {
            f"ledgermq_broker_half_messages_waiting{{{BROKER}}}": "2+0x60",
            f"ledgermq_broker_transactions_checked_total{{{BROKER}}}": "0+1x60",
        },
        {
            f"ledgermq_broker_half_messages_waiting{{{BROKER}}}": "2+0x40 0 2+0x60",
            f"ledgermq_broker_transactions_checked_total{{{BROKER}}}": "0+1x60",
        },
    ),
    "PoisonMessages": (
        {f"ledgermq_broker_poison_messages_total{{{BROKER}}}": "0+0x30 1+0x60"},
        {f"ledgermq_broker_poison_messages_total{{{BROKER}}}": "1+0x60"},
    ),
    "ClientsDenied": (
        {
            f"ledgermq_writer_denied_total{{{HERE}}}": "0+0.5x60",
            f"ledgermq_broker_denied_total{{{BROKER}}}": "0+0.5x60",
        },
        {
            f"ledgermq_writer_denied_total{{{HERE}}}": "0+0.2x60",
            f"ledgermq_broker_denied_total{{{BROKER}}}": "0+0.2x60",
        },
    ),
    "ClientsThrottled": (
        {
            f"ledgermq_writer_throttled_total{{{HERE}}}": "0+50x60",
            f"ledgermq_broker_throttled_total{{{BROKER}}}": "0+20x60",
        },
        {
            f"ledgermq_writer_throttled_total{{{HERE}}}": "0+50x60",
            f"ledgermq_broker_throttled_total{{{BROKER}}}": "0+0x60",
        },
    ),
    "RequestsFailed": (
        {f"ledgermq_broker_requests_failed_total{{{BROKER}}}": "0+0x30 1+0x60"},
        {f"ledgermq_broker_requests_failed_total{{{BROKER}}}": "1+0x60"},
    ),
    "CertificateEnds": (
        {f'ledgermq_certificate_expiry_timestamp_seconds{{{HERE},setting="http"}}': "1209600+0x60"},
        {f'ledgermq_certificate_expiry_timestamp_seconds{{{HERE},setting="http"}}': "1220000+0x60"},
    ),
    "CertificateEndsNow": (
        {f'ledgermq_certificate_expiry_timestamp_seconds{{{HERE},setting="http"}}': "172800+0x60"},
        {f'ledgermq_certificate_expiry_timestamp_seconds{{{HERE},setting="http"}}': "180000+0x60"},
    ),
    "BackupOld": (
        {**NODE, f"ledgermq_backup_timestamp_seconds{{{HERE}}}": "0+0x400"},
        {**NODE, f"ledgermq_backup_timestamp_seconds{{{HERE}}}": "0+0x40 144000+0x400"},
    ),
    "BackupStreamBehind": (
        {**NODE, f"ledgermq_backup_stream_timestamp_seconds{{{HERE}}}": "0+0x60"},
        {**NODE, f"ledgermq_backup_stream_timestamp_seconds{{{HERE}}}": "0+60x60"},
    ),
    "BackupMissing": (NODE, {**NODE, f"ledgermq_backup_timestamp_seconds{{{HERE}}}": "0+0x400"}),
    "ArchiveOld": (
        {**NODE, f'ledgermq_archive_timestamp_seconds{{{HERE},archive="x"}}': "0+0x400"},
        {**NODE, f'ledgermq_archive_timestamp_seconds{{{HERE},archive="x"}}': "0+3000x400"},
    ),
    "ClusterRightsTooOld": (
        {f"ledgermq_broker_cluster_rights_too_old{{{BROKER}}}": "1+0x60"},
        {f"ledgermq_broker_cluster_rights_too_old{{{BROKER}}}": "0+0x60"},
    ),
    "ClusterHomeSilent": (
        {f"ledgermq_broker_cluster_current_at{{{BROKER}}}": "1+0x60"},
        {f"ledgermq_broker_cluster_current_at{{{BROKER}}}": "1+60000x60"},
    ),
    "ScrapesFail": (
        {f"ledgermq_observer_scrapes_failed_total{{{HERE}}}": "0+1x60"},
        {f"ledgermq_consumer_lag_look_age_seconds{{{HERE}}}": "600+0x60"},
    ),
}  # fmt: skip
"""By alert: values by which it is raised an hour later, and values by which it is not."""

LONG = {
    **{"BackupOld": 60, "BackupMissing": 60, "ArchiveOld": 60, "SealingStandsStill": 60},
    "FeatureLevelWaits": 180,
}
"""Alerts about what is made by the day: hours until they are looked at."""

NOT_YET = {
    "BackupMissing": "10h",
    "ConsumerLagGrows": "25m",
    "DiskFillsUp": "5m",
    "MemberBehind": "4m",
    "FeatureLevelWaits": "167h",
    "SealingStandsStill": "23h",
}
"""Times at which what raises it has not lasted for long enough."""


def names() -> list[str]:
    return [alert.name.removeprefix("Ledgermq") for alert in alerts]


def rule_test(name: str) -> list[dict[str, object]]:
    """Promtool's tests of one alert."""
    interval = DAYS if name in LONG else "1m"
    at = f"{LONG[name]}h" if name in LONG else "60m"
    firing = f'count(ALERTS{{alertname="Ledgermq{name}",alertstate="firing"}})'

    def one(given: Given, moments: dict[str, int]) -> dict[str, object]:
        return {
            "interval": interval,
            "input_series": [{"series": key, "values": value} for key, value in given.items()],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": moment,
                    "exp_samples": [{"labels": "{}", "value": count}] if count else [],
                }
                for moment, count in moments.items()
            ],
        }

    raised, quiet = CASES[name]
    early = {NOT_YET[name]: 0} if name in NOT_YET else {}
    return [one(raised, {**early, at: 1}), one(quiet, {at: 0})]


def test_what_is_checked_in_is_what_the_list_says() -> None:
    made = "\n".join(
        alert_rules.rules(alert_rules.Pace(), job="ledgermq", runbooks=alert_rules.RUNBOOKS)
    )

    assert alert_rules.RULES.read_text() == made + "\n", (
        "run packaging/observability/alert_rules.py"
    )
    assert alert_rules.DOCUMENT.read_text() == alert_rules.document()


def test_each_alert_has_its_case() -> None:
    assert list(CASES) == names()
    assert len(set(names())) == len(names()) >= 20


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize(
    "is_long",
    [pytest.param(False, marks=pytest.mark.long, id="hours"), pytest.param(True, id="days")],
)
def test_each_alert_is_raised_by_what_it_is_for_and_not_by_less(
    tmp_path: Path, is_long: bool
) -> None:
    tests = [one for name in names() if (name in LONG) == is_long for one in rule_test(name)]
    file = tmp_path / "tests.json"
    file.write_text(
        json.dumps(
            {
                "rule_files": [str(alert_rules.RULES)],
                "evaluation_interval": "1h" if is_long else "1m",
                "tests": tests,
            }
        )
    )
    ran = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_promtool_takes_the_rules_also_hastened(tmp_path: Path) -> None:
    hastened = tmp_path / "rules.yml"
    pace = alert_rules.Pace(60, 20_000)
    hastened.write_text("\n".join(alert_rules.rules(pace, job="one", runbooks="https://x")))
    for file in (alert_rules.RULES, hastened):
        ran = subprocess.run(
            ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(file)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

        assert f"SUCCESS: {len(alerts)} rules found" in ran.stdout, ran.stderr
    assert 'up{job=\\"one\\"} == 0' in hastened.read_text()


@pytest.mark.parametrize("alert", alerts, ids=names())
def test_an_alert_goes_by_series_that_there_are(alert: Any) -> None:
    known = set(CATALOG)
    for name, series in CATALOG.items():
        if series.kind is SeriesKind.HISTOGRAM:
            known.add(f"{name}_bucket")
    asked = set(re.findall(r"\b(?:ledgermq|rocketmq)_[a-z_]+", alert.expr))

    assert asked <= known
    assert asked or "up{" in alert.expr


def anchors(page: Path) -> set[str]:
    """Those of a page's headlines, as Git hosts make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("alert", alerts, ids=names())
def test_an_alert_leads_to_what_to_do(alert: Any) -> None:
    links = re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", alert.todo)

    assert alert.anchor in anchors(OPERATING / "alerts.md")
    assert links or "As above" in alert.todo or alert.name == "LedgermqRequestsFailed"
    for page, anchor in links:
        assert not anchor or anchor in anchors(OPERATING / page), (page, anchor)


@pytest.mark.parametrize("alert", alerts, ids=names())
def test_an_alert_says_what_is_wrong_in_few_words(alert: Any) -> None:
    assert re.fullmatch(r"Ledgermq[A-Z][A-Za-z]+", alert.name)
    assert len(alert.summary) < 120
    assert not alert.summary.endswith(".")
    assert alert.description.endswith(".")
