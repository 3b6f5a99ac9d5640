"""The mark that keeps the log from the last snapshot of the broker's tables on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.checked_document import write_document
from ledgermq.store.state_mark import read_state_mark, write_state_mark


def test_a_mark_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_state_mark(tmp_path / "mark") is None

    write_state_mark(tmp_path / "mark", 2**40)

    assert read_state_mark(tmp_path / "mark") == 2**40


def test_what_is_no_mark_is_an_error(tmp_path: Path) -> None:
    write_document(tmp_path / "mark", {"position": "12"})
    with pytest.raises(CorruptLogError):
        read_state_mark(tmp_path / "mark")
    (tmp_path / "mark").write_bytes(b"torn")
    with pytest.raises(CorruptLogError):
        read_state_mark(tmp_path / "mark")
