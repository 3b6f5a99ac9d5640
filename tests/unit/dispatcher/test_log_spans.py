"""Where the log begins for the dispatcher, which builds queues anew from there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.kernels.kernel import ScanStatus, scan_entries
from ledgermq.store.log_family import LogFamily, LogFolder
from tests.small_store import LOG_FILE_SIZE, write_store


def spans_of(root: Path) -> LogSpans:
    return LogSpans(
        LogFamily(
            LogFolder(root / "commitlog", 0),
            LogFolder(root / "dledger-n0" / "data", HEADER_SIZE),
        )
    )


def status_at_the_start(spans: LogSpans) -> ScanStatus:
    start = spans.start()
    span = spans.span(start)
    assert span is not None
    rows = memoryview(bytearray(8 * 16)).cast("q")
    found = scan_entries(
        span.view, start - span.start, len(span.view), span.header_size, span.start, rows, rows
    )
    return ScanStatus(found[2])


@pytest.mark.parametrize("lost", [4, 48, 200, 500])
def test_a_page_that_a_disk_has_lost_is_not_passed_over(tmp_path: Path, lost: int) -> None:
    write_store(tmp_path)
    data = tmp_path / "dledger-n0" / "data"
    with (data / f"{0:020d}").open("r+b") as file:
        file.write(bytes(lost))
    with closing(spans_of(tmp_path)) as spans:
        # Queues that are built anew wait there for the repair, and lack nothing of it afterwards.
        assert spans.start() == 0
        assert status_at_the_start(spans).corrupt


def test_a_log_whose_oldest_files_are_deleted_begins_with_the_next_one(tmp_path: Path) -> None:
    write_store(tmp_path)
    (tmp_path / "dledger-n0" / "data" / f"{0:020d}").unlink()
    with closing(spans_of(tmp_path)) as spans:
        assert spans.start() == LOG_FILE_SIZE


def test_without_files_it_begins_at_0_and_a_plain_one_with_its_oldest_file(tmp_path: Path) -> None:
    with closing(spans_of(tmp_path / "missing")) as spans:
        assert spans.start() == 0
    write_store(tmp_path, entries=False)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    with closing(spans_of(tmp_path)) as spans:
        assert spans.start() == LOG_FILE_SIZE
