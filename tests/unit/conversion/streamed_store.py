"""A store of tiny files, and a runtime directory that says how far it is committed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ledgermq.cli.main import main
from ledgermq.conversion.stream.repository import Repository
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.model.config.settings import ListenSection, LogKind, Settings, StoreSection
from ledgermq.model.config.settings_file import write_settings
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.log_reader import LogReader, LogRecord
from ledgermq.store.store_directory import open_directory
from tests.small_store import BEGIN_MS, SIZES, STEP_MS, write_store

MESSAGES = 10


class StreamedStore:
    """Its node runs, as far as a stream can see."""

    def __init__(
        self,
        folder: Path,
        *,
        entries: bool = True,
        key: str = "",
        begin_ms: int = BEGIN_MS,
        step_ms: int = STEP_MS,
    ) -> None:
        self.root, self.repository = folder / "store", folder / "repository"
        self.place = str(self.repository)
        self.runtime = folder / "runtime"
        self.root.mkdir(parents=True)
        self.runtime.mkdir()
        write_store(
            self.root, entries=entries, messages=MESSAGES, begin_ms=begin_ms, step_ms=step_ms
        )
        log = LogKind.DLEDGER if entries else LogKind.COMMITLOG
        settings = Settings(
            listen=ListenSection(runtime_dir=self.runtime),
            store=StoreSection(path_root_dir=self.root, log=log, **SIZES),
        )
        (self.runtime / "settings.toml").write_text(write_settings(settings))
        self.page = CursorPage.create(self.runtime / "cursors")
        self.records = records_of(self.root)
        self.words: list[str] = []
        self._key = key
        if key:
            path = folder / "key"
            path.write_text(key)
            path.chmod(0o600)
            self.words = ["--key-file", str(path)]

    @property
    def streamed(self) -> Path:
        """The one stream in the repository."""
        (folder,) = self.repository.iterdir()
        return folder

    def opened(self) -> Repository:
        """What is in the repository."""
        (place,) = places_at(self.place).streams().values()
        return Repository(place, bytes.fromhex(self._key) or None)

    def end_of(self, number: int) -> int:
        """Position behind the record with that number."""
        record = self.records[number]
        return record.position + (HEADER_SIZE if record.header else 0) + record.message.size

    def index_of(self, number: int) -> int:
        """Index of that record, as ``--to-index`` takes it."""
        header = self.records[number].header
        return self.end_of(number) if header is None else header.index

    def commit(self, number: int) -> None:
        """Let all up to the record with that number be committed."""
        header = self.records[number].header
        index, term = (0, 0) if header is None else (header.index, header.term)
        self.page.publish_committed(
            LogCursor(Position(self.end_of(number)), Index(index), Term(term))
        )

    def stream(self, *words: str) -> int:
        """One turn of a stream by the command; its exit status."""
        return main(
            ["backup", "stream", str(self.root), self.place, "--once",
             "--runtime-dir", str(self.runtime), *self.words, *words]
        )  # fmt: skip

    def stream_each(self, *words: str) -> None:
        """A turn for each record."""
        for number in range(MESSAGES):
            self.commit(number)
            assert self.stream(*words) == 0

    def begin_in_child(self) -> None:
        """Share nothing with the process that this one was forked of."""

    def restore(self, root: Path, *words: str) -> int:
        """Restore by the command, into a group of another name."""
        return main(
            ["backup", "restore", self.place, str(root), "--group", "other",
             "--self-id", "n0", *self.words, *words]
        )  # fmt: skip

    def verify(self, *words: str) -> int:
        """Verify by the command; its exit status."""
        return main(["backup", "verify", self.place, *self.words, *words])


def stream_at_once(store: StreamedStore, *steps: int) -> None:
    """Have as many processes stream the log at once, each all records in steps of its own."""
    children = []
    for step in steps:
        child = os.fork()
        if child == 0:
            store.begin_in_child()
            for number in range(0, MESSAGES, step):
                store.commit(number)
                # A piece that it looks at may just have become part of a whole one: it asks again.
                if all(store.stream() for _ in range(MESSAGES)):
                    os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    store.commit(MESSAGES - 1)
    assert store.stream() == 0


def records_of(root: Path) -> list[LogRecord]:
    """All records of a store's log."""
    reader = LogReader(open_directory(root))
    try:
        return list(reader.iterate())
    finally:
        reader.close()


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below ``folder``, by their path in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def exit_status_of(work: Any) -> int:
    """What a process ends with that does ``work`` and nothing else; 0 if it comes to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
