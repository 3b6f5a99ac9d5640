"""Files of a log that tests open, and nobody closes: those of a thousand tests are too many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.log.entry_files import EntryFiles


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Behind each test, what it has opened is closed."""
    opened: list[AppendFiles | EntryFiles] = []
    for kind in (AppendFiles, EntryFiles):

        def open_noted(self: Any, *args: Any, _open: Any = kind.__init__, **options: Any) -> None:
            opened.append(self)
            _open(self, *args, **options)

        monkeypatch.setattr(kind, "__init__", open_noted)
    yield
    for files in opened:
        if isinstance(files, EntryFiles):
            files.forget()
        elif getattr(files, "_fd", -1) >= 0:
            files.close()
