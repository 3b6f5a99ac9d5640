"""Children of the supervisor: how long each may be silent."""

from __future__ import annotations

import os
from pathlib import Path

from ledgermq.daemon.children import START_PATIENCE, Child
from ledgermq.ipc.cursor_page import TURNS_AT, CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.process.child_process import Entry


def test_who_gives_way_to_all_others_may_be_silent_for_as_long_as_a_start_takes(
    tmp_path: Path,
) -> None:
    settings = Settings()
    limit = settings.supervision.beat_timeout_ms
    entry: Entry = lambda _settings, _stop: 0  # noqa: E731 - it is not run
    with CursorPage.create(tmp_path / "cursors") as page:
        for role, allowed in ((Role.WRITER, limit), (Role.RECEIPTS, START_PATIENCE * limit)):
            child = Child(role, entry, pid=os.getpid())
            page.enter_process(role)
            assert child.silence_max_ms(page, settings) == START_PATIENCE * limit
            page.sign_cells(role)[TURNS_AT] = 1
            assert child.is_turning(page)
            assert child.silence_max_ms(page, settings) == allowed
