"""RocketMQ's JSON files: whole at any moment, with the content before kept beside."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.formats.config_json import decode_document
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.process.table_files import table_files
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.store.files.config_file import ConfigFile
from tests.suite.patience import PATIENCE_S


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_read_as_it_was_saved_and_keeps_the_one_before(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "config" / "x.json")

    empty = file.load()
    for number in range(4):
        file.save({"n": number})

    assert empty == {}
    assert file.load() == {"n": 3}
    assert decode_document((tmp_path / "config" / "x.json.bak").read_bytes()) == {"n": 2}
    assert names(tmp_path / "config") == ["x.json", "x.json.bak"]


@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_a_missing_or_damaged_file_is_replaced_by_its_backup(
    tmp_path: Path, content: bytes | None
) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    file.save({"n": 2})
    file.path.unlink()
    if content is not None:
        file.path.write_bytes(content)

    assert file.load() == {"n": 1}


def test_damage_without_a_backup_is_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.path.write_bytes(b"{")

    with pytest.raises(CorruptLogError, match=r"x\.json"):
        file.load()


@pytest.mark.parametrize("leftover", ["x.json.tmp", "x.json.bak.tmp"])
def test_what_a_crash_left_behind_does_no_harm(tmp_path: Path, leftover: str) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    # The state between the renames of backup and file: two names of one content.
    (tmp_path / "x.json.bak").hardlink_to(file.path)
    (tmp_path / leftover).write_bytes(b"half")
    file.save({"n": 2})
    file.save({"n": 3})

    assert file.load() == {"n": 3}
    assert decode_document((tmp_path / "x.json.bak").read_bytes()) == {"n": 2}
    assert names(tmp_path) == ["x.json", "x.json.bak"]


def test_a_refused_save_says_so_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    file.save({"n": 1})
    (tmp_path / "x.json.tmp").mkdir()

    with pytest.raises(StorageError, match=r"x\.json"):
        file.save({"n": 2})
    assert file.load() == {"n": 1}


def test_a_leader_of_a_fresh_directory_has_rocketmqs_tables(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path / "config", Settings())
    tables.begin_term(1)
    tables.save_changed()
    tables.close()
    again = BrokerTables(tmp_path / "config", Settings())

    assert again.topics.get("TBW102") is not None
    assert again.groups.get("TOOLS_CONSUMER") is not None
    assert (again.topics.version, again.groups.version) == (1, 1)


def test_offsets_are_written_a_second_after_a_change_and_not_at_once(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    path = tmp_path / "consumerOffset.json"
    idle = tables.sleep_ms(0)
    tables.offsets.set("g", "t", {0: 1})
    tables.tick(0)
    tables.offsets.set("g", "t", {0: 2})
    waits = tables.sleep_ms(0)
    tables.tick(999_000_000)
    early = path.exists()
    tables.tick(1_000_000_000)
    tables.offsets.set("g", "t", {0: 3})
    tables.close()

    assert idle is None
    assert waits == 1_000
    assert not early
    written = GroupOffsets.read(decode_document(path.read_bytes()))
    assert written.offsets("g", "t") == {0: 3}
    before = GroupOffsets.read(decode_document(path.with_name(path.name + ".bak").read_bytes()))
    assert before.offsets("g", "t") == {0: 2}


def test_a_failed_write_of_offsets_is_tried_again(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    obstacle = tmp_path / "consumerOffset.json.tmp"
    obstacle.mkdir()
    tables.offsets.set("g", "t", {0: 1})
    tables.tick(0)
    tables.tick(1_000_000_000)
    assert tables._write is not None
    failed = tables._write.exception()
    tables.tick(1_060_000_000)
    waits = tables.sleep_ms(1_060_000_000)
    obstacle.rmdir()
    tables.tick(2_060_000_000)
    tables.close()

    assert isinstance(failed, StorageError)
    assert waits == 1_000
    content = (tmp_path / "consumerOffset.json").read_bytes()
    assert GroupOffsets.read(decode_document(content)).offsets("g", "t") == {0: 1}


def test_files_are_written_at_once_and_each_is_a_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other they took longer on a slow disk than a process may be silent, or stop."""
    tables = BrokerTables(tmp_path / "config", Settings())
    tables.begin_term(1)
    tables.save_changed()
    documents = tables.state.documents()
    met = threading.Barrier(len(documents))
    save_content = ConfigFile.save_content

    def save_when_all_are_there(file: ConfigFile, content: bytes) -> None:
        met.wait(PATIENCE_S)
        save_content(file, content)

    monkeypatch.setattr(ConfigFile, "save_content", save_when_all_are_there)
    signs: list[None] = []
    tables.sign_of_life = lambda: signs.append(None)
    tables.close()

    assert signs
    for file, document in documents.items():
        assert table_files(tmp_path / "config")[file].load() == document


def test_a_file_that_cannot_be_written_keeps_no_other_from_it_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = BrokerTables(tmp_path / "config", Settings())
    documents = tables.state.documents()
    refused = next(iter(documents))
    save_content = ConfigFile.save_content

    def save_but_one(file: ConfigFile, content: bytes) -> None:
        if file.path.name == Path(refused).name:
            raise StorageError("file not replaced", file=str(file.path))
        save_content(file, content)

    monkeypatch.setattr(ConfigFile, "save_content", save_but_one)
    with pytest.raises(StorageError, match="not replaced"):
        tables.close()

    for file, document in documents.items():
        found = table_files(tmp_path / "config")[file].load()
        assert found == ({} if file == refused else document)
