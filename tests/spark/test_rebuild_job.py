"""``spark rebuild`` builds what Java built, and ``store install-derived`` takes it over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main
from ledgermq.client import Consumer
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.config.settings import StoreSection
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.pipeline.jobs.rebuild_job import rebuild
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.store_directory import open_directory
from tests.format.test_dispatch_golden import SIZES as GOLDEN_SIZES
from tests.format.test_dispatch_golden import folder_content
from tests.process.batch_store import TOPIC as BATCH_TOPIC
from tests.process.batch_store import write_batch_store
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import SIZES as NODE_SIZES
from tests.process.group_nodes import TOPIC
from tests.process.test_queue_ends import (
    IDLE,
    SENT,
    check_goes_on,
    check_stores,
    idle_group,
)
from tests.small_store import SIZES, write_store
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Json = dict[str, Any]
MAGIC = (0xDAA320A7).to_bytes(4, "big")


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> Json:
    """What a command prints with ``--json``, or the error that it ends with."""
    capsys.readouterr()
    found = main([*map(str, words), "--json"])
    printed = capsys.readouterr()

    assert found == status, printed.err
    document: Json = json.loads(printed.out if status == 0 else printed.err)
    return document if status == 0 else document["error"]


def size_options(sizes: Json) -> list[str]:
    return [
        f"--queue-file-size={sizes['mapped_file_size_consume_queue']}",
        f"--hash-slots={sizes['max_hash_slot_num']}",
        f"--index-items={sizes['max_index_num']}",
    ]


def derived(root: Path) -> list[object]:
    """Queues by name; index files without their names, which are times of creation."""
    index = folder_content(root / "index")
    return [folder_content(root / "consumequeue"), [index[name] for name in sorted(index)]]


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_it_is_what_java_built(
    spark: SparkSession, golden: Any, tmp_path: Path, capsys: Any, name: str
) -> None:
    out = tmp_path / "derived"
    words = ("spark", "rebuild", golden(name), "--out", out)
    built = run(capsys, *words, *size_options(GOLDEN_SIZES))

    assert derived(out) == derived(golden(name))
    assert built["units"] == built["messages"] > 200
    assert sorted(path.name for path in out.iterdir()) == ["consumequeue", "derived.json", "index"]


def places(content: bytearray, found: bytes) -> Iterator[int]:
    """Where ``found`` stands in ``content``."""
    at = content.find(found)
    while at >= 0:
        yield at
        at = content.find(found, at + 1)


def renumber(root: Path) -> None:
    """Give messages numbers that repeat and leave some out, as only RocketMQ's rule can put."""
    for path in sorted((root / "commitlog").iterdir()):
        content = bytearray(path.read_bytes())
        for at in list(places(content, MAGIC)):
            offset = int.from_bytes(content[at + 16 : at + 24], "big")
            if offset > 2:
                content[at + 16 : at + 24] = (offset + 2 - offset % 3).to_bytes(8, "big")
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["dledger", "commitlog", "renumbered"])
def test_what_is_installed_is_what_our_dispatcher_builds(
    spark: SparkSession, tmp_path: Path, capsys: Any, kind: str
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    write_store(store, entries=kind == "dledger", messages=60)
    if kind == "renumbered":
        renumber(store)
    run(capsys, "store", "rebuild", store, *size_options(SIZES))
    expected = [derived(store), (store / "checkpoint").read_bytes()]
    own = (store / "ledgermq" / "dispatch-checkpoint").read_bytes()
    built = run(capsys, "spark", "rebuild", store, "--split-mib=1", *size_options(SIZES))
    unit = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    unit.write_bytes(b"\x01" + unit.read_bytes()[1:])
    damaged = folder_content(store / "consumequeue")
    installed = run(capsys, "store", "install-derived", store)

    assert (built["ordered"] > 0) == (kind == "renumbered")
    assert [derived(store), (store / "checkpoint").read_bytes()] == expected
    assert (store / "ledgermq" / "dispatch-checkpoint").read_bytes() == own
    assert folder_content(Path(installed["aside"][0])) == damaged
    assert not (store / "ledgermq" / "derived").exists()
    if kind != "renumbered":
        options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
        assert check_store(store, options).findings == []


@pytest.mark.parametrize("file_size", [None, 46 * 64])
def test_queues_of_batches_are_those_of_our_dispatcher(
    spark: SparkSession, tmp_path: Path, capsys: Any, file_size: int | None
) -> None:
    """Records of several messages and single ones, in files of the size that there were."""
    store = tmp_path / "store"
    store.mkdir()
    write_batch_store(store, records=400, body=300)
    if file_size is not None:
        folder = store / BATCH_FOLDER / BATCH_TOPIC / "0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(bytes(file_size))
    run(capsys, "store", "rebuild", store, *size_options(SIZES))
    expected = [*derived(store), folder_content(store / BATCH_FOLDER)]
    checkpoints = [
        (store / name).read_bytes() for name in ("checkpoint", "ledgermq/dispatch-checkpoint")
    ]
    built = run(capsys, "spark", "rebuild", store, *size_options(SIZES))
    installed = run(capsys, "store", "install-derived", store)

    assert [*derived(store), folder_content(store / BATCH_FOLDER)] == expected
    assert [
        (store / name).read_bytes() for name in ("checkpoint", "ledgermq/dispatch-checkpoint")
    ] == checkpoints
    assert (built["ordered"], len(expected[2])) == (1, 1 if file_size is None else 7)
    assert folder_content(Path(installed["aside"][-1])) == expected[2]


@pytest.mark.long
def test_a_queue_whose_messages_are_all_deleted_is_numbered_on(
    spark: SparkSession, capsys: Any
) -> None:
    """The log tells the job nothing of it; what is installed ends where it ended."""
    with nodes_made() as make_node:
        (member,) = idle_group(make_node).members
        root = member.node.root
        assert member.node.stop() == 0
        run(capsys, "spark", "rebuild", root, *size_options(NODE_SIZES))
        staged = root / "ledgermq" / "derived" / "consumequeue" / TOPIC
        queues_of_the_log = sorted(path.name for path in staged.iterdir())
        run(capsys, "store", "install-derived", root)
        check_stores([member])
        member.start()
        member.node.wait_ready()
        with Consumer(member.address, topic=TOPIC) as consumer:
            wait_until(lambda: consumer.ends()[IDLE] == SENT, "the end", PATIENCE_S)
        check_goes_on(member)
        assert member.node.stop() == 0
        check_stores([member])

    assert queues_of_the_log == ["0"]


def test_what_is_not_of_this_log_is_not_installed(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    for root in (store, other):
        root.mkdir()
        write_store(root, entries=False)
    path = next((store / "commitlog").iterdir())
    last = path.read_bytes().rindex(MAGIC) - 4
    content = bytearray(path.read_bytes())
    content[last + 20] ^= 1
    out = tmp_path / "derived"
    run(capsys, "spark", "rebuild", other, "--out", out, *size_options(SIZES))
    before = derived(other)
    (out / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()
    lacking = run(capsys, "store", "install-derived", other, "--from", out, status=2)
    missing = run(capsys, "store", "install-derived", other, status=1)
    run(capsys, "spark", "rebuild", other, "--out", out, *size_options(SIZES))
    path.write_bytes(content)
    foreign = run(capsys, "store", "install-derived", store, "--from", out, status=1)

    assert derived(other) == before
    assert "not what their description says" in lacking["message"]
    assert "no complete derived files" in missing["message"]
    assert "of another log" in foreign["message"]


def test_errors_of_tasks_keep_their_names(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    store = tmp_path / "store"
    store.mkdir()
    write_store(store, entries=False)
    path = sorted((store / "commitlog").iterdir())[0]
    content = bytearray(path.read_bytes())
    message = list(places(content, MAGIC))[1] - 4
    content[message + 4] ^= 1
    path.write_bytes(content)
    out = tmp_path / "derived"
    error = run(capsys, "spark", "rebuild", store, "--out", out, *size_options(SIZES), status=2)
    (out / "derived.json").unlink()
    strange = run(capsys, "spark", "rebuild", store, "--out", out, status=1)

    assert (error["kind"], error["details"]["file"]) == ("CorruptLogError", str(path))
    assert "not empty" in strange["message"]


def test_parts_within_files_give_the_same_bytes(
    spark: SparkSession, golden: Any, tmp_path: Path
) -> None:
    directory = open_directory(golden("gd0"))
    section = StoreSection(path_root_dir=directory.root, log=directory.log, **GOLDEN_SIZES)
    job = Job(spark, lambda _done, _all: None)
    built = rebuild(job, directory, section, tmp_path / "derived", split_bytes=150_000)

    assert built.tasks > 5
    assert built.index_files == 3
    assert derived(tmp_path / "derived") == derived(golden("gd0"))
