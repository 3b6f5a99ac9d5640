"""What the demo unpacks stays below the folder that it was given."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.exit_status import EXIT_CONFIG


def archive_with(path: Path, name: str, kind: bytes, link: str) -> Path:
    with tarfile.open(path, "w") as archive:
        whole = tarfile.TarInfo("store/commitlog/00000000000000000000")
        archive.addfile(whole, io.BytesIO(b""))
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        member.size = len(b"x") if kind == tarfile.REGTYPE else 0
        archive.addfile(member, io.BytesIO(b"x"))
    return path


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../outside", tarfile.REGTYPE, ""),
        ("store/../../outside", tarfile.REGTYPE, ""),
        ("{}/outside", tarfile.REGTYPE, ""),
        ("store/link", tarfile.SYMTYPE, "/etc"),
        ("store/link", tarfile.LNKTYPE, "../outside"),
        ("store/fifo", tarfile.FIFOTYPE, ""),
    ],
)
def test_an_archive_that_leaves_its_folder_is_refused_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: bytes, link: str
) -> None:
    name = name.format(tmp_path)
    archive = archive_with(tmp_path / "store.tar", name, kind, link)

    assert main(["demo", "--directory", str(archive)]) == EXIT_CONFIG
    assert name in capsys.readouterr().err
    assert not (tmp_path / "outside").exists()
