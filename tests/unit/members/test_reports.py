"""Reports in the runtime directory: a directory that refuses them harms nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.members.reports import read_rows, write_rows


def test_a_report_that_cannot_be_written_leaves_the_last_one_and_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "damage"
    write_rows(path, [{"file": "a"}])
    # No file can be made beside it: it is refused as in a directory that is full.
    (tmp_path / "damage.new").mkdir()
    write_rows(path, [{"file": "b"}])

    assert read_rows(path) == [{"file": "a"}]
    assert "not reported" in caplog.text
