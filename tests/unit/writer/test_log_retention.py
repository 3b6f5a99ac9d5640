"""When the writer looks for old files of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import TIMESTAMP, store_fields_at
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.model.config.settings import (
    ListenSection,
    LogKind,
    NodeSection,
    RetentionSection,
    Settings,
    StoreSection,
)
from ledgermq.process.node import Surroundings
from ledgermq.writer.log.log_opening import open_log
from ledgermq.writer.retention.log_retention import LogRetention
from ledgermq.writer.retention.log_survey import take_survey
from tests.process.running import wait_for
from tests.small_store import BEGIN_MS, LOG_FILE_SIZE, SIZES, write_store
from tests.suite.space import short_folder

KEEPS_ALL = RetentionSection(file_reserved_time=876_000, force_above="100%")
SECOND_NS = 1_000_000_000


@pytest.fixture
def unled(tmp_path: Path) -> Iterator[LogRetention]:
    """That of a store with three files, of which the first is needed by nobody; raft has not spoken
    yet."""
    with ExitStack() as stack:
        # A path of pytest's is too long for a unix socket.
        runtime = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="lmq-", dir=short_folder()))
        )
        root = tmp_path / "store"
        write_store(root)
        settings = Settings(
            node=NodeSection(self_id="n0"),
            store=StoreSection(
                path_root_dir=root,
                log=LogKind.DLEDGER,
                mapped_file_size_commit_log=LOG_FILE_SIZE,
                **SIZES,
            ),
            listen=ListenSection(runtime_dir=runtime),
            retention=KEEPS_ALL,
        )
        page = CursorPage.create(runtime / "cursors")
        stack.callback(page.close)
        environment = Surroundings.enter(Role.WRITER, settings)
        stack.callback(environment.page.close)
        stack.callback(environment.context.destroy, 0)
        log = open_log(settings, is_in_use=False, sign_of_life=lambda: None)
        stack.callback(log.writer.close)
        made = LogRetention(environment, log)
        stack.callback(made.close)
        yield made


@pytest.fixture
def retention(unled: LogRetention) -> LogRetention:
    """The same, of a log that is committed to its end."""
    end = unled._log.writer.end
    unled._page.publish_committed(LogCursor(end.position, end.index_, end.term))
    return unled


def finish_survey(retention: LogRetention) -> None:
    """Wait for the one under way, in its thread."""
    survey = retention._survey
    assert survey is not None
    wait_for(survey.done, "the survey")


def test_a_writer_does_not_turn_on_and_on_before_a_leader_has_committed(
    unled: LogRetention,
) -> None:
    assert not unled.turn(0, 0)
    # It has nothing to do by itself: no time is one to look at.
    assert unled.sleep_ms(0) is None
    end = unled._log.writer.end
    unled._page.publish_committed(LogCursor(end.position, end.index_, end.term))

    assert unled.sleep_ms(0) == 0


def test_settings_that_change_while_the_store_is_surveyed_are_looked_at_next(
    retention: LogRetention, caplog: pytest.LogCaptureFixture
) -> None:
    retention.turn(0, 0)
    finish_survey(retention)
    retention.take_settings(replace(KEEPS_ALL, bytes_max="1B"))
    retention.turn(SECOND_NS, 0)
    by_the_old = caplog.text
    retention.turn(SECOND_NS, 0)
    finish_survey(retention)
    retention.turn(SECOND_NS, 0)

    assert "retention.bytes_max" not in by_the_old
    assert "retention.bytes_max = 1B" in caplog.text


def test_a_file_that_is_made_while_the_store_is_surveyed_is_looked_at_a_second_later(
    retention: LogRetention,
) -> None:
    retention.turn(0, 0)
    finish_survey(retention)
    retention.turn(SECOND_NS, 1)

    assert retention.sleep_ms(SECOND_NS) == 1_000


def test_a_clock_that_is_years_ahead_of_the_newest_message_deletes_nothing_at_a_start(
    retention: LogRetention, caplog: pytest.LogCaptureFixture
) -> None:
    always = ";".join(f"{hour:02}" for hour in range(24))
    retention.take_settings(replace(KEEPS_ALL, file_reserved_time=72, delete_when=always))
    retention.turn(0, 0)
    finish_survey(retention)
    retention.turn(SECOND_NS, 0)

    assert "ahead of the newest message" in caplog.text
    assert retention.wanted == retention.begin == 0


def test_a_file_is_not_older_than_those_before_it_whatever_clock_its_leader_had(
    retention: LogRetention,
) -> None:
    folder = retention._settings.store.path_root_dir / "dledger-n0" / "data"
    for path in sorted(folder.iterdir())[1:]:
        with path.open("r+b") as file:
            head = memoryview(file.read(HEADER_SIZE + 160))[HEADER_SIZE:]
            file.seek(HEADER_SIZE + store_fields_at(head)[0])
            file.write(TIMESTAMP.pack(BEGIN_MS - 90 * 86_400_000))
    survey = take_survey(retention._settings, KEEPS_ALL, retention._page)

    assert len(survey.files) > 2
    assert min(file.last_store_ms for file in survey.files) >= BEGIN_MS
