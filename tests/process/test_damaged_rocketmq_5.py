"""Stores of RocketMQ 5, cut and damaged at random: told or taken, and nothing whole is cut."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.formats.records.message import MAGICS, SIZE_AND_MAGIC
from ledgermq.formats.store_markers import COMMITLOG_BLANK_MAGIC
from ledgermq.model.exit_status import EXIT_BUG
from tests.conftest import Golden
from tests.process.batch_store import write_batch_store
from tests.process.conftest import Node, wait_until
from tests.process.node_start import SERVE
from tests.process.test_rocketmq_5_store import STORE, content

pytestmark = pytest.mark.slow

SEED = 47
DRAWS = 75
STARTS = 12
COMMAND_S = 60
DAMAGES_MAX = 3
STRETCH_MAX = 5_000
BATCHES = "batches"
ROCKETMQ_5 = ("p551", "p551v2k", "d551-n0", "r551rocks", "controller", BATCHES)
PARTS = ("commitlog", "dledger-n0", "consumequeue", "index", "config", "timerlog", "")
PARTS_OF_BATCHES = (*PARTS, *(3 * ["batchconsumequeue"]))
FILE_SIZE = 1_048_576
EPOCHS = b"2\n0\n1-0\n4-100000\n"


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def zero(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    size = min(chance.randrange(1, STRETCH_MAX), len(data) - at)
    data[at : at + size] = bytes(size)


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 20)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def scribble(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    size = min(chance.randrange(1, STRETCH_MAX), len(data) - at)
    data[at : at + size] = chance.randbytes(size)


def lengthen(data: bytearray, chance: random.Random) -> None:
    data += chance.randbytes(chance.randrange(1, STRETCH_MAX))


KINDS = (cut, zero, flip, scribble, lengthen)


def damage(root: Path, chance: random.Random, parts: tuple[str, ...] = PARTS) -> list[str]:
    """Do one to three bad things to files of ``root``; what was done."""
    done: list[str] = []
    for _ in range(chance.randint(1, DAMAGES_MAX)):
        part = root / chance.choice([part for part in parts if (root / part).is_dir()])
        found = part.rglob("*") if part != root else root.iterdir()
        files = sorted(one for one in found if one.is_file() and one.stat().st_size)
        if not files:
            continue
        path = chance.choice(files)
        name = str(path.relative_to(root))
        if not chance.randrange(6):
            path.unlink()
            done.append(f"{name}: gone")
            continue
        data, kind = bytearray(path.read_bytes()), chance.choice(KINDS)
        kind(data, chance)
        path.write_bytes(data)
        done.append(f"{name}: {kind.__name__}")
    return done


def marks(root: Path) -> dict[Path, tuple[int, int]]:
    """Times of change and sizes of all files."""
    found = {path: path.stat() for path in root.rglob("*")}
    return {path: (one.st_mtime_ns, one.st_size) for path, one in found.items()}


@contextmanager
def in_time() -> Iterator[None]:
    """Whoever takes longer hangs."""

    def hang(*_: object) -> None:
        raise AssertionError(f"not over within {COMMAND_S} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(COMMAND_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def archive_batches(target: Path) -> None:
    """A store with a batch topic that nobody but RocketMQ has had."""
    write_batch_store(target, records=40, file_size=FILE_SIZE)
    assert main(["store", "rebuild", str(target)]) == 0
    shutil.rmtree(target / "ledgermq")


def archive(golden: Golden, name: str, target: Path) -> None:
    """A copy of a store; that of a controller is a plain one with epochs, that of batches is made.

    The wheel repeats what the log has, nobody reads it, and it is as large as a hundred stores.
    """
    if name == BATCHES:
        archive_batches(target)
        return
    given = golden("p551" if name == "controller" else name)
    subprocess.run(["cp", "-a", "--sparse=always", str(given), str(target)], check=True)
    wheel = target / "timerwheel"
    if wheel.exists():
        wheel.write_bytes(b"")
    if name == "controller":
        (target / "epochFileCheckpoint").write_bytes(EPOCHS)


@pytest.mark.long(but=0)
@pytest.mark.parametrize("name", ROCKETMQ_5)
def test_commands_say_what_is_wrong_and_change_nothing(
    name: str, golden: Golden, make_node: Callable[[], Node], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    chance, node, conf = random.Random(SEED), make_node(), tmp_path / "broker.conf"
    node.configure(store={**STORE, **({"log": "dledger"} if name.startswith("d551") else {})})
    rows = {"storePathRootDir": node.root, "mappedFileSizeCommitLog": FILE_SIZE}
    if name.startswith("d551"):
        rows |= {"enableDLegerCommitLog": "true", "dLegerGroup": "oracle", "dLegerSelfId": "n0"}
        rows |= {"dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"}
    conf.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    for number in range(DRAWS):
        shutil.rmtree(node.root, ignore_errors=True)
        archive(golden, name, node.root)
        done = damage(node.root, chance, PARTS_OF_BATCHES if name == BATCHES else PARTS)
        before = marks(node.root)
        for words in (
            ["migrate", "check", str(conf)],
            ["serve", "--config", str(node.config), "--check"],
            ["store", "check", str(node.root)],
            ["config", "from-rocketmq", str(conf)],
        ):
            with in_time():
                status = main(words)
            said = capsys.readouterr()
            # Ours would be told as such, with a traceback.
            assert status != EXIT_BUG, (number, words, done, said.err)
        assert marks(node.root) == before, (number, done)


def whole_records(root: Path) -> dict[int, bytes]:
    """Each record of a plain log by its position, as far as sizes lead from one to the next."""
    found: dict[int, bytes] = {}
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while at + SIZE_AND_MAGIC.size <= len(data):
            size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
            if magic == COMMITLOG_BLANK_MAGIC or magic not in MAGICS:
                break
            found[int(path.name) + at] = data[at : at + size]
            at += size
    return found


def lacking(root: Path, records: dict[int, bytes]) -> list[int]:
    """Positions of those that are not there as they were."""
    files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    missing = []
    for position, record in records.items():
        start = position - position % FILE_SIZE
        at = position - start
        if files.get(start, b"")[at : at + len(record)] != record:
            missing.append(position)
    return missing


@pytest.mark.long(but=0)
@pytest.mark.parametrize("name", ["p551", "p551v2k", BATCHES])
def test_a_node_starts_or_says_why_not_and_cuts_nothing_that_is_whole(
    name: str, golden: Golden, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    archive(golden, name, tmp_path / "whole")
    chance, records = random.Random(SEED), whole_records(tmp_path / "whole")
    for number in range(STARTS):
        node = make_node()
        archive(golden, name, node.root)
        node.configure(store=STORE)
        done = damage(node.root, chance, PARTS_OF_BATCHES if name == BATCHES else PARTS)
        lost = lacking(node.root, records)
        before = content(node.root / "commitlog")
        node.launch([*SERVE, str(node.config)])
        wait_until(
            lambda node=node: "READY=1" in node.listen() or node._has_ended(), "a start, or its end"
        )
        if node._has_ended():
            assert node.wait_end() != 0, done
            assert content(node.root / "commitlog") == before, (number, done)
        else:
            assert node.stop() == 0, (number, done)
            assert lacking(node.root, records) == lost, (number, done)
        said = node.log.read_text()
        assert "Traceback" not in said, (number, done, said)
        node.destroy()
        shutil.rmtree(node.folder, ignore_errors=True)
