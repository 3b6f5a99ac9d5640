"""Every command that docs/operating tells is one that our command line understands, and is run.

Those behind ``$`` are run by ``tests/process/test_operating_documents.py``; pages with commands of
root by ``tests/boot/test_operating_pages.py``. What nobody runs has its reason here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledgermq.cli.main import _parser
from tests.operating_commands import (
    LANGUAGES,
    Told,
    blocks_of,
    documents,
    told_in,
    words_of,
)

CLUSTER = "is for a Spark cluster"
JOBS = "is a job of Spark, which tests/spark runs as programs call it"
BUILT = "goes around a job of Spark; tests/spark puts its result in place"
TERMINAL = "goes on until somebody leaves it; tests/process/test_top_command.py does, in a terminal"
MIGRATION = "moves a broker of RocketMQ; tests/compat/test_migrate.py does, there and back"
WHEEL = "builds and fetches for another host; tests/bare/test_wheels.py does, in bare roots"
FETCHES = "fetches 640 MB; tests/buckets/test_readers.py reads with what of it is needed"
PACKAGES = "builds for hosts of all suites; tests/bare/test_repository.py does, for each"
WITNESS = "tests/process/test_witness_without_bodies.py adds one so"
TWO_SITES = "needs a group of two and a witness; tests/process/test_config_init.py makes one so"
MIRROR = "needs a mirror, or its store; tests/process/test_mirror.py has one"
UNDERSTUDY = "needs a master of RocketMQ; tests/process/test_understudy.py has a small one"
TABLES = "is a job of Spark into a lake; tests/spark/test_table_archive.py has one"
PYTHON = "is Spark's Python; all of tests/spark runs with it"
LEVELS = "needs a group of two versions; tests/process/test_new_version_page.py has one"

DEV = "goes on until Ctrl-C; tests/process/test_dev_command.py ends it so"

GROUPS = "needs two groups; tests/process/test_cluster_groups.py has them"

MQADMIN = "is RocketMQ's own; tests/compat/test_mqadmin.py runs all of its commands"
MQADMIN_5 = "is RocketMQ 5's own; tests/compat/test_pop_clients.py runs it"

BUCKET = "needs an object store; tests/buckets/test_backup_streams.py has one"

PIECES = "needs a bucket; tests/unit/pipeline and tests/buckets run them"

TOPIC_KEYS = "makes and deletes keys; tests/unit/pipeline/test_locked_pieces.py does"

RECEIPTS = "needs a key on a node; tests/process/test_receipts.py has one"

NOT_RUN = {
    ("backup.md", "ledgermq backup "): BUCKET,
    ("cold-storage.md", "ledgermq offset show "): PIECES,
    ("cold-storage.md", "ledgermq explain "): PIECES,
    ("cold-storage.md", "ledgermq piece "): PIECES,
    ("cold-storage.md", "ledgermq backup "): PIECES,
    ("cold-storage.md", "ledgermq topic "): PIECES,
    ("cold-storage.md", "export "): TOPIC_KEYS,
    ("cold-storage.md", "rm "): TOPIC_KEYS,
    **dict.fromkeys(
        [
            ("console.md", one)
            for one in ("mkdir -p /etc", "printf '", "systemctl d", "systemctl r")
        ],
        "the same drop-in is given to a booted host by tests/boot/test_observer.py",
    ),
    ("first-steps.md", "ledgermq dev"): DEV,
    ("group.md", "ledgermq raft add n2 "): WITNESS,
    ("iceberg.md", "ledgermq spark "): TABLES,
    ("install.md", "make apt-repo "): PACKAGES,
    ("install.md", "make wheel"): WHEEL,
    ("install.md", "pip install "): WHEEL,
    ("migrate.md", "ledgermq migrate "): MIGRATION,
    ("mqadmin.md", "export "): MQADMIN,
    ("mqadmin.md", "sh bin/mqadmin "): MQADMIN,
    ("rocketmq-clients.md", "mqadmin setConsumeMode "): MQADMIN_5,
    ("new-version.md", "ledgermq cluster features"): LEVELS,
    ("new-version.md", "ledgermq upgrade check"): LEVELS,
    ("receipts.md", "ledgermq piece "): RECEIPTS,
    ("receipts.md", "ledgermq receipt "): RECEIPTS,
    ("receipts.md", "ledgermq topic "): RECEIPTS,
    ("rocketmq5.md", "ledgermq migrate back "): MIGRATION,
    ("second-site.md", "ledgermq mirror missing"): MIRROR,
    ("second-site.md", "ledgermq mirror promote"): MIRROR,
    ("second-site.md", "ledgermq mirror rejoin"): MIRROR,
    ("second-site.md", "ledgermq mirror status"): MIRROR,
    ("several-groups.md", "ledgermq acl add "): GROUPS,
    ("several-groups.md", "ledgermq cluster "): GROUPS,
    ("several-groups.md", "ledgermq quota set "): GROUPS,
    ("several-groups.md", "ledgermq topic "): GROUPS,
    ("spark-jobs.md", "export "): CLUSTER,
    ("spark-jobs.md", "ledgermq spark "): JOBS,
    ("spark-jobs.md", "ledgermq store install-derived "): BUILT,
    ("spark-jobs.md", "pyspark "): FETCHES,
    ("spark-jobs.md", "spark-submit "): CLUSTER,
    ("spark-jobs.md", "systemctl "): BUILT,
    ("spark.md", "export "): PYTHON,
    ("spark.md", "pip install "): WHEEL,
    ("spark.md", "python -m ledgermq.pipeline.early_python "): PYTHON,
    ("two-sites.md", "ledgermq "): TWO_SITES,
    ("understudy.md", "cd /var/lib/ledgermq"): UNDERSTUDY,
    ("understudy.md", "ledgermq backup stream understudy"): UNDERSTUDY,
    ("understudy.md", "ledgermq piece seal understudy"): UNDERSTUDY,
    ("understudy.md", "ledgermq understudy "): UNDERSTUDY,
    ("understudy.md", "mv understudy.prom"): UNDERSTUDY,
    ("watching.md", "ledgermq top"): TERMINAL,
}
"""Why no test runs commands that begin so."""

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "operating"
BOOTED = ROOT / "tests" / "boot" / "test_operating_pages.py"


@pytest.mark.parametrize("document", documents())
def test_commands_are_understood(document: str) -> None:
    for told in told_in(document):
        if told.text.startswith("ledgermq "):
            words = words_of(told.text.replace("…", "tcp://127.0.0.1:1"))
            arguments = _parser(words).parse_args(words)

            assert callable(arguments.func), told


@pytest.mark.parametrize("document", documents())
def test_every_block_says_what_it_is(document: str) -> None:
    languages = {block.language for block in blocks_of(document)}

    assert languages <= LANGUAGES


@pytest.mark.parametrize("document", documents())
def test_no_command_hides_in_a_block_of_something_else(document: str) -> None:
    programs = {told.text.split()[0] for page in documents() for told in told_in(page)}
    hidden = [
        line
        for block in blocks_of(document)
        if block.language == "text"
        for line in block.text.splitlines()
        # A line with bars between verbs is an overview, and no command.
        if line.strip().split(" ")[0] in programs and " | " not in line
    ]

    assert hidden == []


def test_what_no_test_runs_has_its_reason_and_no_other_has_one() -> None:
    left_out = [told for page in documents() for told in told_in(page) if not told.prompt]
    without = [told for told in left_out if not any(reason_fits(told, *key) for key in NOT_RUN)]
    needless = [key for key in NOT_RUN if not any(reason_fits(told, *key) for told in left_out)]

    assert without == []
    assert needless == []
    assert all(NOT_RUN.values())


def reason_fits(told: Told, document: str, beginning: str) -> bool:
    return told.document == document and told.text.startswith(beginning)


def test_pages_with_commands_of_root_are_read_on_booted_hosts() -> None:
    read = set(re.findall(r'"([a-z0-9-]+\.md)"', BOOTED.read_text()))
    wanted = {
        page for page in documents() if any(told.prompt not in ("", "$") for told in told_in(page))
    }

    assert wanted
    assert wanted == read


def test_the_results_that_capacity_names_are_there() -> None:
    named = set(re.findall(r"`(\w+\.json)`", (FOLDER / "capacity.md").read_text()))
    there = {path.name for path in (ROOT / "bench" / "results").glob("*.json")}

    assert named
    assert named - there == set()
