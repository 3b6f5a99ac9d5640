"""Folders of ``ledgermq dev``: whose they are, and what a crash leaves in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.cli.node.dev_run import TOKENS, NodeFolder, PortClaims, make_nodes
from ledgermq.model.errors import ConfigError


def token_of(path: Path) -> str:
    with NodeFolder(path) as folder, PortClaims() as claims:
        return make_nodes(
            folder, claims, count=None, port=None, has_web=False, has_grpc=False
        ).token


def test_what_file_systems_and_tools_leave_in_a_folder_is_nobodys_and_other_things_are(
    tmp_path: Path,
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    (own / "lost+found").mkdir(parents=True)
    (own / ".DS_Store").write_bytes(b"")
    token = token_of(own)
    other.mkdir()
    (other / "notes.txt").write_bytes(b"")

    assert token_of(own) == token
    with pytest.raises(ConfigError, match="something else"):
        token_of(other)


@pytest.mark.parametrize("left", [b"", b"dev", b"dev 12"])
def test_a_token_that_a_crash_has_cut_is_made_anew(tmp_path: Path, left: bytes) -> None:
    before = token_of(tmp_path)
    (tmp_path / TOKENS).write_bytes(left)
    token = token_of(tmp_path)

    assert len(token) == len(before)
    assert token != before
    assert token_of(tmp_path) == token
    assert (tmp_path / TOKENS).stat().st_mode & 0o777 == 0o600
