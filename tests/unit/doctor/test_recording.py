"""Records as files: bounded, never in the place of another one, and stacks in them as text."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from ledgermq.doctor.recording import node_processes, record_folder, stack_samples
from ledgermq.doctor.recording.far_nodes import files_of
from ledgermq.doctor.recording.node_processes import NodeProcess
from ledgermq.doctor.recording.record_folder import RecordFolder
from ledgermq.doctor.recording.recorder import listing
from ledgermq.doctor.recording.stack_samples import StackSampler, described, stacks_in
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.errors import StorageError
from tests.process.conftest import wait_until


def packed(folder: RecordFolder) -> dict[str, bytes]:
    with tarfile.open(folder.pack(())) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_an_archive_is_never_put_in_the_place_of_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "r.tar.gz").write_text("precious")
    with RecordFolder(tmp_path, "r") as folder:
        folder.put("a.txt", "it", "text")
        paths = [folder.pack(()), folder.pack(())]

    assert [path.name for path in paths] == ["r-2.tar.gz", "r-3.tar.gz"]
    assert (tmp_path / "r.tar.gz").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "r-2.tar.gz", "r-3.tar.gz", "r.tar.gz",
    ]  # fmt: skip
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o600


def test_addresses_that_are_written_alike_have_files_of_their_own() -> None:
    alike = ["tcp://a_b:1", "tcp://a-b:1", "tcp://c:1", "tcp://a b:1"]

    assert files_of(alike) == [
        "nodes/tcp-a-b-1.jsonl", "nodes/tcp-a-b-1+2.jsonl", "nodes/tcp-c-1.jsonl",
        "nodes/tcp-a-b-1+3.jsonl",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        RecordFolder(tmp_path / "nowhere", "r")

    assert refused.value.details["path"] == str(tmp_path / "nowhere")


def test_text_that_is_too_long_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_folder, "FILE_BYTES_MAX", 100)
    with RecordFolder(tmp_path, "r") as folder:
        folder.put("log.txt", "it", "x" * 150 + "the end")
        found = packed(folder)

    assert found["r/log.txt"].startswith(b"[57 bytes before this are left out]\nx")
    assert found["r/log.txt"].endswith(b"xthe end")


def test_lines_end_when_their_file_is_full_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_folder, "FILE_BYTES_MAX", 40)
    with RecordFolder(tmp_path, "r") as folder:
        for number in range(100):
            folder.add_line("s.jsonl", "it", {"n": number})
        found = packed(folder)

    lines = [json.loads(line) for line in found["r/s.jsonl"].splitlines()]
    assert lines == [{"n": number} for number in range(5)]
    assert [one.what for one in folder.missed] == ["s.jsonl"]


def test_files_beyond_the_whole_size_are_left_out_the_last_ones_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_folder, "TOTAL_BYTES_MAX", 250)
    with RecordFolder(tmp_path, "r") as folder:
        for name in ("a", "b", "summary"):
            folder.put(name, "it", name[0] * 100)
        folder.note_what_does_not_fit(("summary",))
        with tarfile.open(folder.pack(("summary",))) as archive:
            names = archive.getnames()

    assert [one.what for one in folder.missed] == ["b"]
    assert names == ["r/summary", "r/a"]


def test_stacks_are_told_by_how_often_they_were_seen() -> None:
    frames = [
        {"name": "run", "file": "/usr/lib/ledgermq/lib/site-packages/ledgermq/ipc/loop.py",
         "line": 138},
        {"name": "sync", "file": "/srv/ledgermq/ledgermq/writer/writer.py", "line": 7},
    ]  # fmt: skip
    text = json.dumps(
        {"shared": {"frames": frames},
         "profiles": [{"name": 'Thread 1 "MainThread"', "samples": [[0], [0, 1], [0, 1], [0, 1]]}]}
    )  # fmt: skip
    found = list(stacks_in(text))

    assert found[0].total == 4
    assert found[0].stacks[0] == (
        ("sync (writer/writer.py:7)", "run (ledgermq/ipc/loop.py:138)"),
        3,
    )
    assert "   75.0 %  3 times" in list(described(found))


def test_without_the_sampler_a_record_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_samples, "find_program", lambda: None)
    with RecordFolder(tmp_path, "r") as folder:
        sampler = StackSampler(folder)
        sampler.follow([NodeProcess(Role.RAFT, 1)])

        assert sampler.finish() == {}
        assert "ledgermq[server]" in folder.missed[0].why


def test_a_sampler_that_may_not_look_is_told_with_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "py-spy"
    refusing.write_text("#!/bin/sh\necho 'Permission Denied: try with elevated permissions'\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(stack_samples, "find_program", lambda: str(refusing))
    with RecordFolder(tmp_path, "r") as folder:
        sampler = StackSampler(folder)
        sampler.follow([NodeProcess(Role.RAFT, 1)])
        wait_until(lambda: folder.text_of("stacks/raft-1.log"), "the sampler to speak")
        sampler.finish()

        assert folder.missed[0].what == "stacks of raft-1"
        assert "run doctor as root" in folder.missed[0].why


def test_folders_of_many_files_are_summed_up(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "one").write_bytes(b"12345")
    (tmp_path / "many").mkdir()
    for number in range(201):
        (tmp_path / "many" / f"{number:03}").write_bytes(b"1")
    lines = list(listing(tmp_path))

    assert [line.split()[-1] for line in lines] == [
        "few/one", "files)", "many/000", "many/001", "many/199", "many/200",
    ]  # fmt: skip
    assert lines[0].split()[0] == "5"
    assert "many/ (201 files)" in lines[1]


def test_of_the_kernels_log_lines_about_a_firewall_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = (
        "t kernel: [UFW BLOCK] IN=eth0 SRC=192.0.2.1\n"
        "t kernel: Out of memory: Killed process 7 (ledgermq)\n"
        "t kernel: nvme0n1: I/O error\n"
    )
    monkeypatch.setattr(node_processes, "_journalctl", lambda: "journalctl")
    monkeypatch.setattr(node_processes, "run_tool", lambda _: told)

    assert node_processes.kernel_log().splitlines() == told.splitlines()[1:]
