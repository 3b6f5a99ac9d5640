"""Parts of ``make check-all``: all tests, on machines that are made for them where they need that;
and of ``make soak``: the same for rare chances, with numbers for a night.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.suite.plugin import LONG, WORKERS_MAX


class Part(NamedTuple):
    """One thing that is run as a whole.

    Attributes:
        tools: what ``packaging/install-tools.sh`` installs for it.
        tests: files and folders that pytest is given, with words of its own.
        command: in the place of pytest, where it is not.
        environment: how long, how often, and what must not be left out quietly.
        soak: what differs from that in ``make soak``, which has no part without it.
        workers: of pytest-xdist, how many; 0 where a test takes all processors.
    """

    name: str
    tools: Sequence[str] = ()
    tests: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    soak: Mapping[str, str] = {}
    workers: str = "auto"


_BARE = {"LEDGERMQ_BARE": "1", "LEDGERMQ_BARE_LONG": "1"}
_BOOT = {
    "LEDGERMQ_BOOT": "1", "LEDGERMQ_BOOT_LONG": "1", "LEDGERMQ_ANSIBLE": "1", "LEDGERMQ_S3": "1",
}  # fmt: skip
_COLLECTOR = {"LEDGERMQ_COLLECTOR": "1"}
_EXEC = {"LEDGERMQ_EXEC_NODES": "1"}
# A JVM's start is work, where most tests wait: with more at once, sends time out.
_JVM_WORKERS = str(min(len(os.sched_getaffinity(0)) + 1, WORKERS_MAX))
_NOT_ORACLE = ("-m", "not oracle")

KILL_TESTS = (
    "tests/process/test_delivery.py",
    "tests/process/test_service_kills.py",
    "tests/process/test_state_log.py",
    "tests/process/test_transaction_kills.py",
)
POINT_TESTS = ("tests/process/test_kill_points.py", "tests/process/test_truncation_kills.py")
FAULT_TESTS = ("tests/process/test_group_faults.py", "tests/linearizability")

_PARTS = (
    Part("check", command=("make", "check")),
    Part("audit", command=("make", "audit")),
    Part(
        "rules",
        tests=(
            "tests/unit", "tests/format", "tests/datadriven", "tests/fuzz", "tests/suite",
            "tests/test_constants.py", "tests/test_distributions.py",
            "tests/test_documentation_site.py", "tests/test_documents.py",
            "tests/test_known_races.py", "tests/test_layout.py",
            "tests/test_maps.py", "tests/test_operating_commands.py", "tests/test_python_pages.py",
        ),
        environment={"LEDGERMQ_FLIP_STEP": "7", "LEDGERMQ_CONVERSION_KILLS": "60"},
        soak={"LEDGERMQ_FLIP_STEP": "1", "LEDGERMQ_CONVERSION_KILLS": "260"},
    ),
    Part("sanitized", command=(sys.executable, "-m", "tests.suite.sanitized")),
    Part(
        "simulator",
        tests=("tests/sim", "tests/raft_group"),
        environment={"LEDGERMQ_SEEDS": "200"},
        soak={"LEDGERMQ_SEEDS": "2000"},
    ),
    Part(
        "processes",
        tools=("metrics", "browser"),
        tests=(
            "tests/process", *_NOT_ORACLE,
            *(f"--ignore={name}" for name in (*KILL_TESTS, *POINT_TESTS, *FAULT_TESTS[:1])),
        ),
        environment={
            "LEDGERMQ_KILLS": "4", "LEDGERMQ_MEMBER_KILLS": "2", "LEDGERMQ_FULL_DISK_ROUNDS": "2",
            "LEDGERMQ_FUZZ_S": "20", "LEDGERMQ_BROWSER": "1", "LEDGERMQ_ALERTS": "1",
        } | _EXEC,
        soak={
            "LEDGERMQ_KILLS": "20", "LEDGERMQ_MEMBER_KILLS": "5", "LEDGERMQ_FULL_DISK_ROUNDS": "5",
            "LEDGERMQ_FUZZ_S": "60",
        },
    ),
    Part(
        "kills",
        tests=KILL_TESTS,
        environment={"LEDGERMQ_LEADER_KILLS": "10"} | _EXEC,
        soak={"LEDGERMQ_LEADER_KILLS": "100"},
    ),
    Part(
        "kill-points",
        tests=POINT_TESTS,
        environment={"LEDGERMQ_KILL_POINTS": "40"} | _EXEC,
        soak={"LEDGERMQ_KILL_POINTS": "200"},
    ),
    Part(
        "faults",
        tests=FAULT_TESTS,
        environment={
            "LEDGERMQ_FAULT_ROUNDS": "2", "LEDGERMQ_FAULT_S": "5", "LEDGERMQ_PORCUPINE": "1",
        } | _EXEC,
        soak={"LEDGERMQ_FAULT_ROUNDS": "3", "LEDGERMQ_FAULT_S": "30"},
    ),
    Part(
        "random-faults",
        tests=("tests/random_faults",),
        environment={"LEDGERMQ_RANDOM_FAULTS_S": "1800"},
        soak={"LEDGERMQ_RANDOM_FAULTS_S": "3600"},
        workers="0",
    ),
    Part(
        "acknowledged",
        tests=("tests/acknowledged",),
        environment={"LEDGERMQ_ACKNOWLEDGED_KILLS": "20"} | _EXEC,
        soak={"LEDGERMQ_ACKNOWLEDGED_KILLS": "200"},
    ),
    Part(
        "buckets",
        tools=("s3", "gs", "abfs"),
        tests=("tests/buckets",),
        environment={"LEDGERMQ_S3": "1", "LEDGERMQ_GS": "1", "LEDGERMQ_ABFS": "1"},
    ),
    Part(
        "tables",
        tools=("s3", "postgresql"),
        tests=("tests/tables",),
        environment={
            "LEDGERMQ_SPARK": "1", "LEDGERMQ_S3": "1", "LEDGERMQ_ICEBERG_REST": "1",
            "LEDGERMQ_ICEBERG_SPARK": "1", "LEDGERMQ_POSTGRESQL": "1",
        },
    ),
    Part("traces", tests=("tests/collector",), environment=_COLLECTOR),
    Part("attacks", tests=("tests/adversary",), environment=_EXEC),
    Part(
        "power",
        tools=("power",),
        tests=("tests/power",),
        environment={"LEDGERMQ_POWER": "1", "LEDGERMQ_POWER_CUTS": "2"},
        soak={"LEDGERMQ_POWER_CUTS": "10"},
    ),
    Part(
        "oracle",
        tools=("browser",),
        tests=("tests/compat",),
        environment={
            "LEDGERMQ_JAVA_KILLS": "2", "LEDGERMQ_MIGRATE_LONG": "1", "LEDGERMQ_DASHBOARDS": "1",
            "LEDGERMQ_BROWSER": "1", "LEDGERMQ_UNDERSTUDY_KILLS": "40",
        } | _COLLECTOR,
        soak={"LEDGERMQ_JAVA_KILLS": "10", "LEDGERMQ_UNDERSTUDY_KILLS": "200"},
        workers=_JVM_WORKERS,
    ),
    Part(
        "spark",
        tools=("browser",),
        tests=("tests/spark",),
        environment={
            "LEDGERMQ_SPARK": "1", "LEDGERMQ_SPARK_KILLS": "2", "LEDGERMQ_SPARK_DRIVER_KILLS": "2",
            "LEDGERMQ_SPARK_CLUSTER": "1", "LEDGERMQ_SPARK_WHEEL": "1",
            "LEDGERMQ_SPARK_SPECULATION": "1", "LEDGERMQ_BROWSER": "1",
        },
        soak={"LEDGERMQ_SPARK_KILLS": "10", "LEDGERMQ_SPARK_DRIVER_KILLS": "5"},
    ),
    # Of hours and days, in an hour; it takes all processors.
    Part(
        "week",
        tools=("s3",),
        tests=("tests/week",),
        environment={"LEDGERMQ_WEEK_MINUTES": "60", "LEDGERMQ_SPARK": "1", "LEDGERMQ_S3": "1"},
        workers="0",
    ),
    Part("packages", tools=("deb",), command=("packaging/check-deb.sh",)),
    # A test in a root of its own takes all processors.
    Part("bare", tools=("bare",), tests=("tests/bare",), environment=_BARE, workers="0"),
    Part("boot", tools=("boot", "s3"), tests=("tests/boot",), environment=_BOOT, workers="0"),
)  # fmt: skip

PARTS = tuple(
    one if one.command else one._replace(environment={LONG: "1", **one.environment})
    for one in _PARTS
)

SOAKS = tuple(
    one._replace(name=f"soak-{one.name}", environment={**one.environment, **one.soak})
    for one in PARTS
    if one.soak
)
"""The parts of ``make soak``, each of two hours at most on two cores."""
