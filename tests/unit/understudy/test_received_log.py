"""Received log: the very bytes, whole records alone, and nothing of what is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledgermq.formats.store_markers import BLANK, COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import ProtocolError
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from ledgermq.understudy.received_log import RECORD_SIZE_MAX, ReceivedLog
from tests.conftest import Golden
from tests.small_store import LOG_FILE_SIZE, write_store

STORES = ("gs1", "g6", "p551", "p551v2k")


def log_bytes(root: Path) -> bytes:
    """All bytes of a plain log, up to its end."""
    reader = LogReader(open_directory(root))
    end, first = int(reader.end), int(reader.first)
    reader.close()
    files = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    return files[: end - first]


def received(root: Path, data: bytes, *, file_size: int, step: int) -> ReceivedLog:
    log = ReceivedLog(root, file_size=file_size)
    log.begin_at(0)
    for at in range(0, len(data), step):
        log.take(memoryview(data)[at : at + step])
    return log


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """A log of several small files."""
    write_store(tmp_path / "master", entries=False, messages=20)
    return log_bytes(tmp_path / "master")


@pytest.mark.parametrize("step", [997, 32_768, 10_000_000])
@pytest.mark.parametrize("name", STORES)
def test_a_log_of_rocketmq_is_the_same_here_byte_for_byte(
    name: str, step: int, golden: Golden, tmp_path: Path
) -> None:
    data = log_bytes(golden(name))
    file_size = open_directory(golden(name)).log_file_size
    assert file_size is not None
    log = received(tmp_path, data, file_size=file_size, step=step)
    log.sync()
    (tmp_path / "ledgermq").mkdir()
    log.note_durable()
    log.close()

    assert log.durable == len(data)
    assert log_bytes(tmp_path) == data
    again = ReceivedLog(tmp_path, file_size=file_size)
    again.close()
    assert (again.first, again.end) == (0, len(data))


@pytest.mark.parametrize("step", [1, 7, 500])
def test_a_log_of_many_files_is_the_same_here(small: bytes, step: int, tmp_path: Path) -> None:
    log = received(tmp_path, small, file_size=LOG_FILE_SIZE, step=step)
    log.close()

    assert log_bytes(tmp_path) == small


def test_no_record_is_written_before_it_is_whole(small: bytes, tmp_path: Path) -> None:
    size = int.from_bytes(small[:4], "big")
    log = received(tmp_path, small[: size - 1], file_size=LOG_FILE_SIZE, step=50)

    assert log.is_empty
    assert not (tmp_path / "commitlog").exists()
    log.take(memoryview(small)[size - 1 : size])
    log.close()
    assert log_bytes(tmp_path) == small[:size]


def test_a_turned_byte_is_refused_and_what_is_before_it_stays(small: bytes, tmp_path: Path) -> None:
    first = int.from_bytes(small[:4], "big")
    second = int.from_bytes(small[first : first + 4], "big")
    turned = bytearray(small)
    # In the body: behind the fixed fields of a record.
    turned[first + 95] ^= 1
    log = ReceivedLog(tmp_path, file_size=LOG_FILE_SIZE)
    log.begin_at(0)

    with pytest.raises(ProtocolError) as caught:
        log.take(memoryview(bytes(turned))[: first + second])
    assert caught.value.details["position"] == first
    assert log.end == first
    log.drop_rest()
    # The next connection brings it whole.
    log.take(memoryview(small)[first:])
    log.close()
    assert log_bytes(tmp_path) == small


@pytest.mark.parametrize(
    "head",
    [
        BLANK.pack(LOG_FILE_SIZE - 1, COMMITLOG_BLANK_MAGIC),
        BLANK.pack(0, COMMITLOG_BLANK_MAGIC),
        BLANK.pack(RECORD_SIZE_MAX + 1, 0xDAA320A7),
        BLANK.pack(LOG_FILE_SIZE, 0xDAA320A7),
        BLANK.pack(90, 0xDAA320A7),
        BLANK.pack(0xFFFF_FFFF, 0xDAA320A7),
        bytes(8),
    ],
)
def test_what_cannot_stand_there_is_refused_before_it_is_gathered(
    head: bytes, tmp_path: Path
) -> None:
    log = ReceivedLog(tmp_path, file_size=LOG_FILE_SIZE)
    log.begin_at(0)

    with pytest.raises(ProtocolError):
        log.take(memoryview(head))
    assert not (tmp_path / "commitlog").exists()


def test_a_record_of_another_place_is_refused(small: bytes, tmp_path: Path) -> None:
    size = int.from_bytes(small[:4], "big")
    log = ReceivedLog(tmp_path, file_size=LOG_FILE_SIZE)
    log.begin_at(LOG_FILE_SIZE)

    with pytest.raises(ProtocolError) as caught:
        log.take(memoryview(small)[:size])
    assert caught.value.details["field"] == "physical offset"


def test_what_a_crash_has_torn_is_cut(small: bytes, tmp_path: Path) -> None:
    whole = received(tmp_path / "a", small, file_size=LOG_FILE_SIZE, step=1_000)
    whole.sync()
    whole.close()
    for lost in (80, 120, 160):
        folder = tmp_path / str(lost)
        shutil.copytree(tmp_path / "a", folder)
        start = (len(small) - 1) // LOG_FILE_SIZE * LOG_FILE_SIZE
        with (folder / "commitlog" / f"{start:020d}").open("r+b") as file:
            file.seek(len(small) - lost - start)
            file.write(bytes(lost))
        log = ReceivedLog(folder, file_size=LOG_FILE_SIZE)
        assert log.end < len(small)
        log.take(memoryview(small)[log.end :])
        log.close()
        assert log_bytes(folder) == small


def test_an_empty_log_may_begin_anywhere_and_again_elsewhere(small: bytes, tmp_path: Path) -> None:
    log = ReceivedLog(tmp_path, file_size=LOG_FILE_SIZE)
    log.begin_at(0)
    log.take(memoryview(small)[:50])
    log.drop_rest()
    log.begin_at(LOG_FILE_SIZE)
    log.take(memoryview(small)[LOG_FILE_SIZE:])
    log.close()

    assert log_bytes(tmp_path) == small[LOG_FILE_SIZE:]
    with pytest.raises(ProtocolError):
        ReceivedLog(tmp_path / "b", file_size=LOG_FILE_SIZE).begin_at(17)


@pytest.mark.parametrize("name", STORES)
def test_a_log_that_is_cut_goes_on_from_its_last_whole_record(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    data = log_bytes(golden(name))
    file_size = open_directory(golden(name)).log_file_size
    assert file_size is not None
    log = received(tmp_path, data, file_size=file_size, step=32_768)
    (tmp_path / "ledgermq").mkdir()
    log.sync()
    log.note_durable()
    # Its end, inside a record, where a file ends, and nearly all of it.
    for position in (len(data), len(data) - 7, file_size + 1, file_size, 5_000):
        if not 0 < position <= log.end:
            continue
        log.cut(position)
        assert position - 400_000 < log.end == log.durable <= position
        assert log_bytes(tmp_path) == data[: log.end]
        again = ReceivedLog(tmp_path, file_size=file_size)
        assert again.end == log.end
        again.close()
    log.take(memoryview(data)[log.end :])
    log.sync()
    log.close()

    assert log_bytes(tmp_path) == data
