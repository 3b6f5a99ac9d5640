"""Manifests of old logs: the same for the same records, and different for one bit of difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion.log_manifest import (
    FileDigest,
    LogManifest,
    compare,
    make_manifest,
    read_manifest,
    write_manifest,
)
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NodeId
from tests.conftest import Golden

FIRST = "0" * 20


def manifest_of(store: Path, self_id: str = "n0") -> LogManifest:
    return make_manifest(
        store / "commitlog", group="g", self_id=NodeId(self_id), progress=lambda *_: None
    )


def test_a_log_has_the_same_manifest_before_and_after_its_upgrade(golden: Golden) -> None:
    before, after = manifest_of(golden("gs1")), manifest_of(golden("gu0"))

    assert before == after
    assert (before.end, before.file_size, before.tail) == (964_020, 1_048_576, 0)
    assert before.files[FIRST].used == before.end


def test_a_log_of_several_files_is_read_to_its_end(golden: Golden) -> None:
    found = manifest_of(golden("g6"))

    assert [digest.used < found.file_size for digest in found.files.values()] == [True] * len(
        found.files
    )
    assert found.end == int(max(found.files)) + found.files[max(found.files)].used
    assert len(found.files) > 1


def test_a_manifest_can_be_carried(golden: Golden, tmp_path: Path) -> None:
    made = manifest_of(golden("gs1"))
    write_manifest(tmp_path / "n0.manifest", made)

    assert read_manifest(tmp_path / "n0.manifest") == made


def test_a_manifest_that_was_cut_off_on_its_way_is_refused(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "n0.manifest"
    write_manifest(path, manifest_of(golden("gs1")))
    path.write_bytes(path.read_bytes()[:-12])

    with pytest.raises(CorruptLogError, match="checksum"):
        read_manifest(path)
    with pytest.raises(ConfigError, match="no such manifest"):
        read_manifest(tmp_path / "n1.manifest")


def test_members_that_differ_are_refused_by_name(golden: Golden) -> None:
    made = manifest_of(golden("gs1"))
    other = replace(made, self_id=NodeId("n1"), files={FIRST: FileDigest(made.end, "0" * 64)})
    lacking = replace(made, self_id=NodeId("n2"), files={})

    with pytest.raises(ConfigError, match="n0 and n1 do not have the same old log") as refused:
        compare([made, replace(made, self_id=NodeId("n3")), other])
    assert list(refused.value.details["files"]) == [FIRST]  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="n0 and n2"):
        compare([made, lacking])
    with pytest.raises(ConfigError, match="different groups"):
        compare([made, replace(made, group="other")])
    with pytest.raises(ConfigError, match="same member"):
        compare([made, replace(other, self_id=made.self_id)])


def test_what_stands_behind_a_blank_is_no_difference(golden_copy: Golden) -> None:
    store = golden_copy("gu0")
    before = manifest_of(store)
    with (store / "commitlog" / FIRST).open("r+b") as file:
        file.seek(before.end + 8)
        file.write(b"what RocketMQ had left there")

    assert manifest_of(store) == before


def test_damage_before_the_last_file_is_named(golden_copy: Golden) -> None:
    store = golden_copy("g6")
    with (store / "commitlog" / FIRST).open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\xff\xff\xff")

    with pytest.raises(CorruptLogError) as refused:
        manifest_of(store)

    assert str(refused.value.details["file"]).endswith(FIRST)


def test_what_a_crash_left_behind_the_end_is_counted(golden_copy: Golden) -> None:
    store = golden_copy("gs1")
    end = manifest_of(store).end
    with (store / "commitlog" / FIRST).open("r+b") as file:
        file.seek(end)
        file.write(b"a part of a record")

    assert manifest_of(store) == replace(manifest_of(store), tail=18, end=end)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CommitLog"):
        manifest_of(tmp_path)
