"""A store of RocketMQ 5 whose tables and queues are in RocksDB: taken over, and given back."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.conversion import rocksdb_tables
from ledgermq.conversion.rocksdb_tables import ASIDE, as_converted, convert, read_rocksdb
from ledgermq.formats.rocksdb_rows import QUEUES_FOLDER, SEPARATE, QueuedUnit
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.model.exit_status import EXIT_BUG
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_view import StoreView
from tests.conftest import Golden, GoldenJson
from tests.process.conftest import Node
from tests.process.test_damaged_rocketmq_5 import damage, in_time, marks
from tests.process.test_delivery import received
from tests.process.test_rocketmq_5_store import STORE, content

pytestmark = pytest.mark.slow

SEED = 144
DAMAGES = 50
RAN_WITH = {"storeType": "defaultRocksDB"}
ROWS = {
    "storeType": "defaultRocksDB",
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
    "brokerIP1": "127.0.0.1",
}


def conf_of(root: Path, folder: Path, **more: object) -> Path:
    conf = folder / "broker.conf"
    rows = {"storePathRootDir": root, **ROWS, **more}
    conf.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    return conf


def section(root: Path) -> StoreSection:
    return StoreSection(
        path_root_dir=root, log=LogKind.COMMITLOG, mapped_file_size_consume_queue=4_000,
        max_hash_slot_num=500, max_index_num=400,
    )  # fmt: skip


def take_over(conf: Path, folder: Path) -> int:
    words = ["--manifest", str(folder / "manifest"), "--settings", str(folder / "node.toml")]
    return main(["migrate", "take-over", str(conf), *words, "--json"])


def table(root: Path, file: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config" / file).read_text())[key]
    return found


def offsets_said(answers: Any) -> dict[str, dict[str, int]]:
    """What the broker's own tool told of consumed offsets, in the form of the table."""
    found: dict[str, dict[str, int]] = {}
    for name, text in answers["offsets"].items():
        group, _, queue = name.partition("@")
        topic, _, queue_id = queue.rpartition(":")
        found.setdefault(f"{topic}@{group}", {})[queue_id] = int(text.partition("/")[0])
    return found


def test_what_rocksdb_has_is_what_java_served(golden: Golden, golden_json: GoldenJson) -> None:
    root, answers = golden("r551rocks"), golden_json("r551rocks")
    before = content(root)
    found = read_rocksdb(root, RAN_WITH)

    assert found is not None and found.folders == (*SEPARATE, QUEUES_FOLDER)
    assert found.documents["topics.json"]["topicConfigTable"] == answers["topics"]
    assert found.documents["subscriptionGroup.json"]["subscriptionGroupTable"] == answers["groups"]
    assert found.documents["consumerOffset.json"]["offsetTable"] == offsets_said(answers)
    said = {(one["topic"], one["queue"]): one["max"] for one in answers["queues"] if one["max"]}
    ends = {(topic.decode(), queue): last.offset + 1 for (topic, queue), last in found.ends.items()}
    assert ends == said
    assert content(root) == before


def test_a_store_in_rocksdb_is_taken_over_with_all_that_it_has(
    make_node: Callable[[], Node], golden: Golden, golden_json: GoldenJson, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    node, answers = make_node(), golden_json("r551rocks")
    shutil.copytree(golden("r551rocks"), node.root)
    conf = conf_of(node.root, tmp_path)
    before = content(node.root)
    checked = main(["migrate", "check", str(conf), "--json"])
    told = json.loads(capsys.readouterr().out)
    unchanged = content(node.root)
    taken = take_over(conf, tmp_path)
    facts = json.loads(capsys.readouterr().out)

    assert (checked, told["obstacles"], taken) == (0, "none", 0)
    assert told["taken_over"][0].startswith("23 topics, 10 groups and 1 rows of offsets")
    assert unchanged == before
    assert (facts["messages"], facts["offsets"]) == (96, 4)
    assert len(answers["messages"]) == 96
    assert table(node.root, "topics.json", "topicConfigTable") == answers["topics"]
    view = StoreView(node.root)
    queues = {(one.topic, one.queue_id): (one.first, one.end) for one in view.queues()}
    view.close()
    said = {(one["topic"], one["queue"]): (one["min"], one["max"]) for one in answers["queues"]}
    assert queues == {queue: bounds for queue, bounds in said.items() if bounds[1]}
    kept = {path.name for path in (node.root / "ledgermq" / ASIDE).iterdir()}
    assert kept == {folder.replace("/", "-") for folder in SEPARATE}

    node.configure(store=STORE)
    node.serve()
    wanted = Counter(one["readTopic"] for one in answers["messages"])
    found = {topic: len(received(node.address, topic, count)) for topic, count in wanted.items()}
    with Producer(node.address) as producer:
        producer.send("typed-fifo", b"ours", queue_id=1).result()
    assert node.stop() == 0
    verified = main(["migrate", "verify", str(tmp_path / "manifest"), str(node.root)])
    capsys.readouterr()
    words = ["back", str(node.root), "--manifest", str(tmp_path / "after"), "--to", "5", "--json"]
    handed = main(["migrate", *words])
    back = json.loads(capsys.readouterr().out)

    assert found == wanted
    assert (verified, handed, back["storeType"]) == (0, 0, "default")
    view = StoreView(node.root)
    bodies = [one.message.body for one in view.messages("typed-fifo", 1)]
    view.close()
    assert bytes(bodies[-1]) == b"ours" and len(bodies) == 2


@pytest.mark.parametrize("step", ["tables", "folders", "queues", "place"])
def test_a_take_over_that_was_cut_is_made_again(
    golden_copy: Golden, golden_json: GoldenJson, *, tmp_path: Path, step: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    root, answers = golden_copy("r551rocks"), golden_json("r551rocks")
    tables = read_rocksdb(root, RAN_WITH)
    assert tables is not None
    with monkeypatch.context() as patch:
        moved: list[Path] = []

        def cut(*_: object, **__: object) -> None:
            raise InterruptedError

        def cut_later(source: Path, target: Path) -> None:
            if len(moved) == 2:
                raise InterruptedError
            moved.append(source)
            source.rename(target)

        place = {
            "tables": "conversion.rocksdb_tables.move",
            "folders": "conversion.rocksdb_tables.move",
            "queues": "conversion.rocksdb_tables.rebuild",
            "place": "repair.rebuild.move",
        }[step]
        patch.setattr(f"ledgermq.{place}", cut_later if step == "folders" else cut)
        with pytest.raises((InterruptedError, StorageError)):
            convert(root, tables, section(root), self_id=None, told=lambda _a, _b: None)
    status = take_over(conf_of(root, tmp_path), tmp_path)
    facts = json.loads(capsys.readouterr().out)

    assert (status, facts["messages"]) == (0, 96)
    assert table(root, "topics.json", "topicConfigTable") == answers["topics"]
    assert table(root, "consumerOffset.json", "offsetTable") == offsets_said(answers)


def test_what_a_killed_broker_had_not_put_into_its_queues_is_built_and_told(
    golden_copy: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden_copy("r551rocks")
    (root / "abort").write_text("28071")
    # As it is before RocksDB writes its first sorted file: queues have no journal.
    for path in (root / QUEUES_FOLDER).glob("*"):
        path.unlink()
    shutil.copytree(root / SEPARATE[2], root / QUEUES_FOLDER, dirs_exist_ok=True)
    conf = conf_of(root, tmp_path)
    checked = main(["migrate", "check", str(conf), "--json"])
    told = json.loads(capsys.readouterr().out)
    taken = take_over(conf, tmp_path)
    facts = json.loads(capsys.readouterr().out)

    assert (checked, taken, facts["messages"]) == (0, 0, 96)
    assert told["left_by_crash"] is True
    assert told["taken_over"][0].endswith("0 queues are in RocksDB, and are built from the log")
    assert told["taken_over"][1].startswith("RocketMQ was killed")


def older(root: Path) -> None:
    """A table of the time before RocksDB, as RocketMQ leaves it behind."""
    document = {"dataVersion": {"counter": 2}, "topicConfigTable": {"old": {"topicName": "old"}}}
    (root / "config" / "topics.json").write_text(json.dumps(document))


def newer(root: Path) -> None:
    document = {"dataVersion": {"counter": 11}, "topicConfigTable": {"new": {"topicName": "new"}}}
    (root / "config" / "topics.json").write_text(json.dumps(document))


def test_a_json_table_that_rocketmq_left_behind_becomes_the_copy(
    golden_copy: Golden, golden_json: GoldenJson, tmp_path: Path
) -> None:
    root = golden_copy("r551rocks")
    older(root)

    assert take_over(conf_of(root, tmp_path), tmp_path) == 0
    assert table(root, "topics.json", "topicConfigTable") == golden_json("r551rocks")["topics"]
    assert list(table(root, "topics.json.bak", "topicConfigTable")) == ["old"]


@pytest.mark.parametrize(
    ("spoil", "conf", "said"),
    [
        (newer, RAN_WITH, "in JSON and in RocksDB"),
        (older, {}, "in JSON and in RocksDB"),
        (lambda root: shutil.rmtree(root / SEPARATE[2]), RAN_WITH, "neither in RocksDB nor"),
        (
            lambda root: (
                [
                    shutil.copytree(root / SEPARATE[0], root / "config" / name)
                    for name in ("rdb", "metadata")
                ]
                + [shutil.rmtree(root / folder) for folder in SEPARATE]
            ),
            RAN_WITH,
            "in several RocksDBs",
        ),
        (lambda root: (root / SEPARATE[0] / "CURRENT").unlink(), RAN_WITH, "is damaged"),
        (lambda root: (root / SEPARATE[0] / "CURRENT").write_bytes(b""), RAN_WITH, "is damaged"),
        (
            lambda root: [one.unlink() for one in (root / SEPARATE[1]).glob("*.sst")],
            RAN_WITH,
            "is damaged",
        ),
        (
            lambda root: shutil.copytree(
                root / QUEUES_FOLDER, root / SEPARATE[0], dirs_exist_ok=True
            ),
            RAN_WITH,
            "RocksDB",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_by_its_name_and_nothing_is_changed(
    golden_copy: Golden, tmp_path: Path, *, spoil: Callable[[Path], object],
    conf: dict[str, str], said: str, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    root = golden_copy("r551rocks")
    spoil(root)
    before = content(root)
    with pytest.raises((ConfigError, CorruptLogError), match=said):
        read_rocksdb(root, conf)
    path = conf_of(root, tmp_path, storeType=conf.get("storeType", ""))
    statuses = main(["migrate", "check", str(path), "--json"]), take_over(path, tmp_path)
    told = capsys.readouterr()

    assert statuses[0] == 1 and statuses[1] not in (0, EXIT_BUG)
    assert said in told.out and said in told.err
    assert not (tmp_path / "node.toml").exists()
    # The take-over has locks of its own.
    locks = {str(root / "lock"), str(root / "ledgermq" / "lock")}
    assert {path: one for path, one in content(root).items() if path not in locks} == {
        path: one for path, one in before.items() if path not in locks
    }


def test_a_rocksdb_that_is_open_is_not_taken_over(golden_copy: Golden) -> None:
    root = golden_copy("r551rocks")
    lock = root / SEPARATE[0] / "LOCK"
    program = f"import fcntl, sys; f = open({str(lock)!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('has it', flush=True); sys.stdin.read()"  # noqa: E501
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"has it\n"
        with pytest.raises(StoreLockedError) as refused:
            read_rocksdb(root, RAN_WITH)
        seen = read_rocksdb(root, RAN_WITH, is_open=True)
        assert other.stdin is not None
        other.stdin.close()

    assert refused.value.details["pid"] == other.pid
    assert seen is not None and len(seen.documents) == 3
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.skipif(os.geteuid() != 0, reason="only a superuser can act as another user")
def test_a_superuser_takes_over_as_the_owner_of_the_store(golden: Golden) -> None:
    # Where any user may go: pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="lmq-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        root = place / "store"
        shutil.copytree(golden("r551rocks"), root)
        for path in (root, *root.rglob("*")):
            os.chown(path, 65_534, 65_534)
        closed = place / "closed"
        closed.mkdir(mode=0o700)

        assert take_over(conf_of(root, closed), closed) == 0
        assert {path.stat().st_uid for path in root.rglob("*")} == {65_534}


class Unreadable:
    """A file that takes nothing, as on a full disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def seek(self, _: int) -> None:
        return

    def truncate(self) -> None:
        return

    def fileno(self) -> int:
        return self._file.fileno()


def test_what_is_not_to_be_read_is_refused_with_its_limit(
    golden_copy: Golden, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = golden_copy("r551rocks")
    with monkeypatch.context() as patch:
        patch.setattr(rocksdb_tables, "ROWS_BYTES_MAX", 1_000)
        with pytest.raises(CorruptLogError, match="too many rows"):
            read_rocksdb(root, RAN_WITH)
    with monkeypatch.context() as patch:
        patch.setattr(rocksdb_tables, "COPY_BYTES_MAX", 1_000)
        with pytest.raises(CorruptLogError, match="too large to be copied"):
            read_rocksdb(root, RAN_WITH)
    with monkeypatch.context() as patch:
        patch.setattr(rocksdb_tables, "SECONDS_MAX", 0.001)
        with pytest.raises(StorageError, match="not read in time"):
            read_rocksdb(root, RAN_WITH)
    with (
        monkeypatch.context() as patch,
        Path("/dev/full").open("r+b", buffering=0) as full,
        pytest.raises(StorageError, match="TMPDIR"),
    ):
        patch.setattr(rocksdb_tables.tempfile, "TemporaryFile", lambda **_: Unreadable(full))
        read_rocksdb(root, RAN_WITH)
    # A library of the same name that is none.
    (tmp_path / "rocksdict.py").write_text("raise ImportError('no such library')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")
    with pytest.raises(ConfigError, match=r"pip install 'ledgermq\[rocksdb\]'"):
        read_rocksdb(root, RAN_WITH)


def test_queues_of_timers_are_looked_at_as_files_before_they_are_built(
    golden_copy: Golden,
) -> None:
    root = golden_copy("r551rocks")
    tables = read_rocksdb(root, RAN_WITH)
    assert tables is not None
    units = [QueuedUnit(number, 1_000 + number, 100, number) for number in range(1_500, 4_000)]
    given = type(tables)(
        tables.folders, tables.documents, tables.ends, {(b"rmq_sys_wheel_timer", 0): units}
    )
    with as_converted(root, given) as seen:
        reader = QueueReader(seen / QUEUES_FOLDER / "rmq_sys_wheel_timer" / "0", file_size=None)
        bounds = reader.bounds(1 << 40, log_first=0)
        found = reader.units(1_500, 4_000)["position"].tolist()
        reader.close()
        names = {path.name for path in seen.iterdir()}

    assert bounds == (1_500, 4_000)
    assert found[0] == 2_500 and found == sorted(found)
    assert {"commitlog", "index", "config", QUEUES_FOLDER} <= names
    assert "ledgermq" not in names


def test_queues_that_the_log_has_lost_end_where_rocksdb_says(golden_copy: Golden) -> None:
    root = golden_copy("r551rocks")
    tables = read_rocksdb(root, RAN_WITH)
    assert tables is not None
    log = root / "commitlog"
    (log / f"{0:020d}").rename(log / f"{1_048_576:020d}")
    (log / f"{1_048_576:020d}").write_bytes(bytes(1_048_576))
    convert(root, tables, section(root), self_id=None, told=lambda _a, _b: None)
    found = read_queue_ends(ends_path(root))
    view = StoreView(root)
    built = {(one.topic, one.queue_id): one.end for one in view.queues()}
    view.close()

    wanted = {queue: last.offset + 1 for queue, last in tables.ends.items()}
    assert found is not None and (found.position, dict(found.ends)) == (1_048_576, wanted)
    assert built == {(topic.decode(), queue): end for (topic, queue), end in wanted.items()}


@pytest.mark.long
def test_a_damaged_rocksdb_is_told_or_read_and_nothing_is_changed(
    golden: Golden, golden_json: GoldenJson, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, root = random.Random(SEED), tmp_path / "store"
    conf, seen = conf_of(root, tmp_path), Counter[str]()
    answers = golden_json("r551rocks")
    for number in range(DAMAGES):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(golden("r551rocks"), root)
        done = damage(root, chance, (*SEPARATE, QUEUES_FOLDER))
        before = marks(root)
        with in_time():
            status = main(["migrate", "check", str(conf), "--json"])
        said = capsys.readouterr()

        assert status in (0, 1), (number, done, said.err)
        assert marks(root) == before, (number, done)
        if status:
            assert "RocksDB" in said.out or "not in JSON" in said.out, (number, done, said.out)
            seen["told"] += 1
            continue
        with in_time():
            taken = take_over(conf, tmp_path)
        said = capsys.readouterr()
        assert taken == 0, (number, done, said.err)
        # What was read in spite of it is all there.
        assert table(root, "topics.json", "topicConfigTable") == answers["topics"], done
        assert table(root, "consumerOffset.json", "offsetTable") == offsets_said(answers), done
        (tmp_path / "node.toml").unlink()
        seen["taken"] += 1

    assert sum(seen.values()) == DAMAGES and min(seen["told"], seen["taken"]) > 0, seen


def test_files_that_go_while_a_broker_runs_are_looked_for_again(
    golden_copy: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy("r551rocks")
    copied = rocksdb_tables._copy
    tries: list[Path] = []

    def vanish(folder: Path, copy: Path) -> None:
        copied(folder, copy)
        tries.append(folder)
        if len(tries) == 1:
            raise FileNotFoundError(2, "gone meanwhile")
        if len(tries) == 2:
            (copy / "CURRENT").write_bytes(b"")

    monkeypatch.setattr(rocksdb_tables, "_copy", vanish)
    found = read_rocksdb(root, RAN_WITH, is_open=True)
    tries.clear()
    with pytest.raises(StorageError, match="not read"):
        read_rocksdb(root, RAN_WITH)

    assert found is not None and len(found.documents) == 3
