"""Backups of stopped stores: what is in them, what is linked, and what a restore refuses."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.conversion import backup_create
from ledgermq.conversion.backup_create import Backup, create_backup
from ledgermq.conversion.backup_manifest import (
    CONTENT,
    BackupManifest,
    backups_in,
    read_manifest,
    write_manifest,
)
from ledgermq.daemon.store_lock import JavaLock
from ledgermq.formats.index_file import IndexLayout
from ledgermq.members.peer_identity import identity_of
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from ledgermq.model.ids import Index, Position, Term
from ledgermq.model.names.own_tables import OWN_TABLES
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.log_verify import verify_log
from ledgermq.rules.state.state_tables import OWN_FILES
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import watched
from ledgermq.store.log_reader import LogReader
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage
from ledgermq.store.state_mark import read_state_mark, write_state_mark
from ledgermq.store.store_directory import open_directory
from ledgermq.store.store_view import StoreView
from tests.small_store import LOG_FILE_SIZE, SIZES, dispatch, write_store

WORDS = ["--hash-slots", "5", "--index-items", "4"]


def back_up(root: Path, target: Path) -> Path:
    """Make a backup by the command; its folder."""
    known = {folder for folder, _ in backups_in(target)}
    assert main(["backup", "create", str(root), str(target), *WORDS]) == 0
    (folder,) = {folder for folder, _ in backups_in(target)} - known
    return folder


def restore(backup: Path, root: Path, *words: str) -> int:
    return main(["backup", "restore", str(backup), str(root), *words])


def log_bytes(root: Path, self_id: str = "n0") -> list[tuple[str, bytes]]:
    folder = root / f"dledger-{self_id}"
    return [
        (f"{path.parent.name}/{path.name}", path.read_bytes())
        for path in sorted(folder.glob("*/*"))
    ]


def bodies(root: Path) -> list[bytes]:
    view = StoreView(root)
    try:
        return [bytes(queued.message.body) for queued in view.messages()]
    finally:
        view.close()


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_what_is_restored_is_what_was_backed_up(tmp_path: Path, *, entries: bool) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root, entries=entries)
    folder = back_up(root, tmp_path / "backups")

    assert main(["backup", "verify", str(folder)]) == 0
    assert restore(folder, again) == 0
    assert bodies(again) == bodies(root)
    assert log_bytes(again) == log_bytes(root)
    for name in ("config/topics.json", "checkpoint", "ledgermq/dispatch-checkpoint"):
        assert (again / name).read_bytes() == (root / name).read_bytes(), name
    options = CheckOptions(index_layout=IndexLayout(slots=5, items=4))
    assert check_store(again, options).findings == []
    assert not (again / "restoring").exists()


def test_the_brokers_own_tables_come_back(tmp_path: Path) -> None:
    """Users and quotas were lost with a restore."""
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    own = root / "ledgermq"
    own.mkdir(exist_ok=True)
    for name in OWN_FILES:
        (own / name).write_text(f'{{"of": "{name}"}}')

    assert restore(back_up(root, tmp_path / "backups"), again) == 0

    for name in OWN_FILES:
        assert (again / "ledgermq" / name).read_text() == f'{{"of": "{name}"}}'


def test_nothing_is_deleted_from_a_restored_log_before_it_is_known_what_waits_in_it(
    tmp_path: Path,
) -> None:
    """A message that is due in a month may lie in a file whose time is over."""
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    write_state_mark(root / "ledgermq" / "state-snapshot", 2 * LOG_FILE_SIZE)

    assert restore(back_up(root, tmp_path / "backups"), again) == 0

    assert read_state_mark(again / "ledgermq" / "state-snapshot") == 0


def test_who_copies_tables_knows_all_that_the_broker_has() -> None:
    assert OWN_TABLES == OWN_FILES


@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0"])
def test_a_store_of_rocketmq_is_backed_up_and_restored(
    golden: Any, golden_copy: Any, tmp_path: Path, name: str
) -> None:
    root, again = golden_copy(name), tmp_path / "again"
    assert main(["backup", "create", str(root), str(tmp_path / "backups")]) == 0
    ((folder, _),) = backups_in(tmp_path / "backups")

    assert restore(folder, again) == 0
    for part in ("consumequeue", "config"):
        found = {
            path.relative_to(again): path.read_bytes()
            for path in (again / part).rglob("*")
            if path.is_file()
        }
        assert found == {
            path.relative_to(golden(name)): path.read_bytes()
            for path in (golden(name) / part).rglob("*")
            if path.is_file()
        }
    view = StoreView(again)
    verified = verify_log(view.log)
    view.close()

    assert verified.records > 200


def test_the_second_backup_links_what_the_first_one_has(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    first, second = back_up(root, target), back_up(root, target)
    names = [name for name, file in read_manifest(first).files.items() if file.sealed]

    assert names[:2] == [
        f"dledger-n0/data/{0:020d}",
        f"dledger-n0/data/{LOG_FILE_SIZE:020d}",
    ]
    for name in names:
        assert (first / CONTENT / name).samefile(second / CONTENT / name), name
        assert (first / CONTENT / name).samefile(root / name), name
    tail = sorted((root / "dledger-n0" / "data").iterdir())[-1].relative_to(root)
    assert not (second / CONTENT / tail).samefile(root / tail)
    # A backup outlives those before it.
    shutil.rmtree(first)

    assert main(["backup", "verify", str(second)]) == 0


def test_what_is_linked_is_durable_before_the_backup_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ack.mode below majority-fsync the node may not have synced a file that is full."""
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    synced: set[int] = set()
    named: list[set[int]] = []

    class Synced:
        def synced(self, fd: int) -> None:
            synced.add(os.fstat(fd).st_ino)

    rename = Path.rename

    def watched_rename(source: Path, to: Path) -> Path:
        if source.name.startswith("partial-"):
            named.append(set(synced))
        return rename(source, to)

    monkeypatch.setattr(Path, "rename", watched_rename)
    with watched(Synced()):
        folder = back_up(root, target)
    linked = {
        (root / name).stat().st_ino
        for name, file in read_manifest(folder).files.items()
        if file.sealed
    }

    assert len(linked) > 2
    assert linked <= named[0]


def test_entries_that_another_leader_may_replace_are_not_linked(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root, committed=4)
    folder = back_up(root, target)
    sealed = [name for name, file in read_manifest(folder).files.items() if file.sealed]
    assert sealed == [f"dledger-n0/data/{0:020d}"]

    # As the writer does where the leader has other entries behind the committed ones.
    data = root / "dledger-n0" / "data"
    reader = LogReader(open_directory(root))
    end, committed_end = reader.end, reader.committed_end()
    reader.close()
    assert committed_end < 2 * LOG_FILE_SIZE < end
    files = AppendFiles(data, file_size=LOG_FILE_SIZE, position=end)
    files.rewind(committed_end)
    files.close()

    assert main(["backup", "verify", str(folder)]) == 0


def test_a_backup_of_another_disk_is_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)

    link = os.link

    def link_within(source: Path, to: Path) -> None:
        if Path(source).is_relative_to(root):
            raise OSError(18, "Invalid cross-device link")
        link(source, to)

    monkeypatch.setattr(backup_create.os, "link", link_within)
    first, second = back_up(root, target), back_up(root, target)
    name = f"dledger-n0/data/{0:020d}"

    assert not (first / CONTENT / name).samefile(root / name)
    assert (first / CONTENT / name).samefile(second / CONTENT / name)
    assert main(["backup", "verify", str(second)]) == 0


def test_a_log_that_was_replaced_is_not_linked_to_the_old_one(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    first = back_up(root, target)
    data = root / "dledger-n0" / "data" / f"{0:020d}"
    content = bytearray(data.read_bytes())
    content[36] ^= 1
    data.unlink()
    data.write_bytes(content)
    second = back_up(root, target)

    assert (second / CONTENT / data.relative_to(root)).read_bytes() == content
    assert (first / CONTENT / data.relative_to(root)).read_bytes() != content


@pytest.mark.parametrize("verb", ["verify", "restore"])
def test_a_turned_bit_in_a_backup_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")
    for name, file in read_manifest(folder).files.items():
        path = folder / CONTENT / name
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[: file.used // 2] + b"\xff" + content[file.used // 2 + 1 :])
        words = [str(folder)] if verb == "verify" else [str(folder), str(again)]

        assert main(["backup", verb, *words]) == EXIT_STORAGE, name
        assert str(path) in capsys.readouterr().err

        path.write_bytes(content)

    assert not (again / "dledger-n0").exists()
    assert restore(folder, again) == 0


def test_a_folder_with_something_in_it_is_not_restored_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")

    assert restore(folder, root) == EXIT_CONFIG
    assert "empty folder only" in capsys.readouterr().err


def test_what_file_systems_and_tools_put_into_a_folder_is_nothing_in_it(tmp_path: Path) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    (again / "ledgermq" / "lost+found").mkdir(parents=True)
    (again / "lost+found").mkdir()
    (again / ".DS_Store").write_bytes(b"")

    assert restore(back_up(root, tmp_path / "backups"), again) == 0
    assert (again / "dledger-n0").is_dir()


def test_a_restored_member_has_a_new_disk_and_an_old_term_without_a_vote(tmp_path: Path) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)

    assert restore(back_up(root, tmp_path / "backups"), again) == 0

    old, new = (identity_of(folder / "ledgermq" / "identity") for folder in (root, again))
    assert old is not None
    assert new is not None
    assert (old[0], old[2]) == (new[0], new[2])
    assert old[1] != new[1]
    assert not (again / "ledgermq" / "term").exists()
    assert (again / "dledger-n0" / "currterm").read_text() == "voteLeader=\ncurrTerm=2\n"
    assert not (again / "ledgermq" / "peers").exists()


def test_a_group_is_restored_under_another_name_and_as_any_member(tmp_path: Path) -> None:
    root, again = tmp_path / "store", tmp_path / "again"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")

    assert restore(folder, again, "--self-id", "n2") == EXIT_CONFIG
    assert restore(folder, again, "--group", "broker-a", "--self-id", "n2") == EXIT_CONFIG

    shutil.rmtree(again)

    assert restore(folder, again, "--group", "other", "--self-id", "n2") == 0
    assert log_bytes(again, "n2") == log_bytes(root)
    old, new = (identity_of(one / "ledgermq" / "identity") for one in (root, again))
    assert old is not None
    assert new is not None
    assert (old[0] == new[0], new[2]) == (False, "n2")


def test_a_store_that_somebody_has_open_is_refused_without_its_runtime_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store(tmp_path)
    lock = JavaLock.take(tmp_path / "lock")
    try:
        target = tmp_path.parent / f"{tmp_path.name}-backups"
        status = main(["backup", "create", str(tmp_path), str(target), *WORDS])
    finally:
        lock.release()

    assert status == EXIT_STORAGE
    assert "--runtime-dir" in capsys.readouterr().err
    assert not target.exists() or not list(target.iterdir())


def test_a_superuser_backs_up_and_restores_for_the_account_that_owns_the_stores() -> None:
    if os.geteuid() != 0:
        pytest.skip("only a superuser can act as another user")
    owner = 65_534
    # pytest's own folders are closed to others; the backups are closed to the stores' owner.
    with tempfile.TemporaryDirectory(prefix="lmq-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        root, again, backups = (folder / one for one in ("store", "again", "backups"))
        for path in (root, again):
            path.mkdir()
        write_store(root)
        for path in (root, again, *root.rglob("*")):
            os.chown(path, owner, owner)
        backups.mkdir(mode=0o700)
        made = back_up(root, backups)
        status = restore(made, again)

        assert status == 0
        assert os.geteuid() == 0
        assert bodies(again) == bodies(root)
        assert {path.stat().st_uid for path in (*root.rglob("*"), *again.rglob("*"))} == {owner}


def describe(root: Path) -> BackupManifest:
    from ledgermq.daemon.backup_source import describe_stopped

    directory = open_directory(root)
    section = StoreSection(path_root_dir=root, log=directory.log, **SIZES)
    return describe_stopped(directory, section)


def test_what_is_to_be_read_is_known_from_the_first_byte_on(tmp_path: Path) -> None:
    """The time that a backup still takes is told of it; links to an earlier one take none."""
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    directory = open_directory(root)
    told: list[list[tuple[int, int]]] = [[], []]
    for seen in told:
        create_backup(
            directory,
            target,
            describe=partial(describe, root),
            told=lambda done, all_, seen=seen: seen.append((done, all_)),
        )

    totals = [{all_ for _, all_ in seen} for seen in told]
    assert [{seen[-1][0]} for seen in told] == totals
    assert max(totals[1]) < max(totals[0])


def test_a_log_file_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    asked: list[int] = []

    def describe_and_delete() -> BackupManifest:
        asked.append(len(asked))
        return describe(root)

    def delete_once(_done: int, _all: int) -> None:
        (root / "dledger-n0" / "data" / f"{LOG_FILE_SIZE:020d}").unlink(missing_ok=True)
        (root / "dledger-n0" / "data" / f"{0:020d}").unlink(missing_ok=True)

    backup: Backup = create_backup(
        open_directory(root),
        tmp_path / "backups",
        describe=describe_and_delete,
        told=delete_once,
    )

    assert asked == [0, 1]
    assert backup.manifest.first == 2 * LOG_FILE_SIZE
    assert f"dledger-n0/data/{0:020d}" not in backup.manifest.files
    assert [folder for folder, _ in backups_in(tmp_path / "backups")] == [backup.folder]
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [backup.folder.name]


def test_a_log_that_is_deleted_faster_than_it_is_read_is_told(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    manifest = describe(root)
    files = sorted((root / "dledger-n0" / "data").iterdir())
    hidden = files[1].read_bytes()

    def come_and_go() -> BackupManifest:
        files[1].write_bytes(hidden)
        return manifest

    with pytest.raises(StorageError, match="try again"):
        create_backup(
            open_directory(root),
            tmp_path / "backups",
            describe=come_and_go,
            told=lambda _done, _all: files[1].unlink(missing_ok=True),
        )

    assert list((tmp_path / "backups").iterdir()) == []


def test_a_log_that_lost_entries_is_not_backed_up_and_named_by_a_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    lost = LogDamage(Position(900), f"{900:020d}", "body crc", Position(3_000), Index(20), Term(2))
    mark_damage(damage_path(root), lost)

    assert main(["backup", "create", str(root), str(target), *WORDS]) == EXIT_STORAGE
    assert "damaged at position 900" in capsys.readouterr().err
    assert backups_in(target) == []
    assert main(["store", "check", str(root), *WORDS]) == 5
    assert "ledgermq/log-damage" in capsys.readouterr().out


def test_a_torn_manifest_is_named(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root)
    folder = back_up(root, target)
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptLogError) as caught:
        read_manifest(folder)

    assert caught.value.details["file"] == str(path)


def test_list_tells_what_each_backup_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    root.mkdir()
    write_store(root, messages=4)
    back_up(root, target)
    dispatch(root)
    back_up(root, target)
    capsys.readouterr()

    assert main(["backup", "list", str(target), "--json"]) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [row["index"] for row in rows] == [3, 3]
    assert [Path(row["backup"]).parent for row in rows] == [target, target]


@pytest.mark.parametrize("self_id", ["x/../../OUT", "..", "", "n0/../n1", "/tmp/x"])
def test_a_manifest_names_no_folder_outside_of_the_target(tmp_path: Path, self_id: str) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")
    write_manifest(folder, replace(read_manifest(folder), self_id=self_id))
    before = sorted(tmp_path.iterdir())

    with pytest.raises(CorruptLogError, match="member that cannot be one"):
        read_manifest(folder)
    assert restore(folder, tmp_path / "again") == EXIT_STORAGE
    assert not (set(tmp_path.iterdir()) - {*before, tmp_path / "again"})
    assert not list((tmp_path / "again").glob("[!l]*"))


@pytest.mark.parametrize(
    "name",
    ["../../x", "/tmp/x", "dledger-n0/../../x", "dledger-n1/data/0", "", "config", "keys/n0.secret",
     "ledgermq/..", "dledger-n0/data/../../../x", "dledger-n0/currterm"],
)  # fmt: skip
def test_a_manifest_names_no_file_that_no_backup_has(tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")
    manifest = read_manifest(folder)
    file = next(iter(manifest.files.values()))
    write_manifest(folder, replace(manifest, files={**manifest.files, name: file}))
    before = sorted(tmp_path.rglob("*"))

    assert main(["backup", "verify", str(folder)]) == EXIT_STORAGE
    assert restore(folder, tmp_path / "again") == EXIT_STORAGE
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("self_id", ["x/../..", "..", "n", "/tmp/x"])
def test_no_store_becomes_that_of_a_member_that_cannot_be_one(tmp_path: Path, self_id: str) -> None:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root)
    folder = back_up(root, tmp_path / "backups")
    words = ["--group", "other", "--self-id", self_id]

    assert restore(folder, tmp_path / "again", *words) == EXIT_CONFIG
    assert {path.name for path in (tmp_path / "again").rglob("*")} == {"ledgermq", "lock"}
