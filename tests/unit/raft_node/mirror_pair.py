"""A source's observer over HTTP, and the consensus of a mirror that asks it, in one process."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ledgermq.ipc.cursor_page import CursorPage, Grant, LogCursor, PublishedRole
from ledgermq.members.roster import roster_of
from ledgermq.model.config.settings import (
    HttpSection,
    ListenSection,
    MirrorSection,
    NodeSection,
    Settings,
    StoreSection,
)
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position, QueueOffset, Term
from ledgermq.model.units import MIB
from ledgermq.observer.service import ObserverService
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import EntryId, HardState
from ledgermq.raft.timing import FlowLimits, Timing
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.raft_node.mirroring.mirror_peers import MirrorPeers
from ledgermq.raft_node.shipping.file_receiver import FileReceiver
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.recovery.recovery import recover_log
from ledgermq.wire.ship_frames import (
    Digest,
    Ends,
    Gone,
    Offer,
    Slice,
    decode_ship_frame,
    is_ship_frame,
)
from tests.process.conftest import wait_until
from tests.unit.store.records import frame_of, record
from tests.unit.store.test_log_writer import HOST

TOKEN = "0123456789abcdef0123456789abcdef"
NAME = "site-b"
FILE_SIZE = 262_144


class StoredLog:
    """A log in a folder, open at its end."""

    def __init__(self, root: Path, name: str) -> None:
        self.settings = Settings(
            node=NodeSection(self_id=name),
            store=StoreSection(path_root_dir=root, mapped_file_size_commit_log=FILE_SIZE),
        )
        self.paths = StorePaths.of(self.settings)
        assert self.paths.index is not None
        found = recover_log(
            self.paths.data, self.paths.index, file_size=FILE_SIZE, checkpoint=None,
            progress=lambda _done, _total: None,
        )  # fmt: skip
        assert found.index is not None
        self.writer = LogWriter(found.data, found.index, end=found.end, store_host=HOST)

    @property
    def end(self) -> LogEnd:
        """Its end."""
        return self.writer.end

    def put(self, count: int, *, term: int, size: int = 900) -> None:
        """``count`` messages more, all of ``term``, a hundred at a time."""
        for first in range(0, count, 100):
            number = self.end.index_ + 1
            some = min(100, count - first)
            records = [record(bytes([n % 251]) * size, number=number + n) for n in range(some)]
            payload, sizes = frame_of(records)
            runs = [StampedRun(some, QueueOffset(number))]
            self.writer.put(payload, sizes, runs, term=Term(term), store_timestamp=1_700)
        self.writer.publish()

    def content(self) -> dict[str, bytes]:
        """Bytes of its data files; a file that was begun up to its last byte that is not 0."""
        return {
            path.name: path.read_bytes().rstrip(b"\0") for path in sorted(self.paths.data.iterdir())
        }


class Source(StoredLog):
    """A member of the source: a log, its page, and an observer that answers."""

    def __init__(
        self,
        folder: Path,
        name: str = "n0",
        *,
        leads: bool = False,
        hears: bool = True,
        bytes_per_s: int = 100 * MIB,
    ) -> None:
        super().__init__(folder / name, name)
        self._stack = ExitStack()
        runtime = folder / f"run-{name}"
        runtime.mkdir()
        tokens = folder / f"tokens-{name}"
        tokens.write_text(f"{NAME} {TOKEN} mirror\nlooks {TOKEN[::-1]} look\n")
        tokens.chmod(0o600)
        self.page = self._stack.enter_context(CursorPage.create(runtime / "cursors"))
        role = PublishedRole.LEADER if leads else PublishedRole.FOLLOWER
        self.page.publish_grant(Grant(Term(1), leads, role, NodeId(name if hears else "")))
        self.settings = Settings(
            node=self.settings.node,
            store=self.settings.store,
            listen=ListenSection(runtime_dir=runtime, http="127.0.0.1:0"),
            http=HttpSection(tokens_file=tokens, console=False, mirror_bytes_per_s=bytes_per_s),
        )
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def commit(self) -> None:
        """All that it has is committed from now on."""
        end = self.end
        self.page.publish_committed(LogCursor(end.position, end.index_, end.term))

    def start(self) -> None:
        """Answer, at ``url``."""
        self._thread.start()
        wait_until(lambda: self.url, "the observer to listen")

    def stop(self) -> None:
        """Answer no more."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()
            self._loop = None

    def close(self) -> None:
        """Stop, and close the files."""
        self.stop()
        self._stack.close()
        self.writer.close()

    async def _serve(self) -> None:
        with ExitStack() as stack:
            observer = ObserverService(self.settings, self.page, stack)
            observer.open()
            host, port = observer._port._listener.getsockname()
            self._loop = asyncio.get_running_loop()
            self.url = f"http://{host}:{port}"
            await self._is_over.wait()
            observer.close()
            # What is closed has a turn to end in.
            await asyncio.sleep(0)


class Copy(StoredLog):
    """A mirror without processes: its peers, its core, and its log."""

    def __init__(self, folder: Path, *urls: str, name: str = "m0") -> None:
        super().__init__(folder / name, name)
        token = folder / f"token-{name}"
        token.write_text(f"{TOKEN}\n")
        token.chmod(0o600)
        self.settings = Settings(
            node=self.settings.node,
            store=self.settings.store,
            mirror=MirrorSection(sources=urls, token_file=token),
        )
        self.runtime = folder / f"run-{name}"
        self.runtime.mkdir(exist_ok=True)
        self.paths.own.mkdir(exist_ok=True)
        self.page = CursorPage.create(self.runtime / "cursors")
        self.peers = MirrorPeers(self.settings, self.page, self.runtime / "mirror")
        self.offers: list[Offer] = []
        self._now = 0
        self._exchange = EntryExchange(self.paths, FILE_SIZE)
        self._exchange.open_at(self.end.index_, self.end.position)
        self.core = RaftCore(
            NodeId(name),
            roster_of(self.settings).membership,
            HardState(Term(0), None),
            commit=NO_INDEX,
            entries_have_terms=True,
            timing=Timing(heartbeat=1_000, election_min=10_000, election_max=20_000),
            flow=FlowLimits(),
            seed=1,
            now=0,
        )
        self.staged = folder / f"staged-{name}"
        self.receiver = FileReceiver(
            self.staged, self.core, self.peers.send, file_size=FILE_SIZE, wake=lambda: None
        )
        last = EntryId(self.end.term, self.end.index_)
        self._carry_out(self.core.log_ready(last, self._exchange.terms(last)), None)

    def turn(self) -> None:
        """Take what has come."""
        self.peers.watch()
        while (received := self.peers.receive()) is not None:
            node, parts = received
            if is_ship_frame(parts[0]):
                self._take_files(node, parts)
                continue
            self._now += 1
            effects = self.core.receive(self._now, node, decode_message(parts[0]))
            self._carry_out(effects, parts[1] if len(parts) > 1 else None)
        self.receiver.turn(time.monotonic_ns())

    def _take_files(self, node: NodeId, parts: list[memoryview]) -> None:
        frame = decode_ship_frame(parts[0])
        if isinstance(frame, Offer):
            self.offers.append(frame)
            self.receiver.take_offer(time.monotonic_ns(), node, frame)
        else:
            assert isinstance(frame, Slice | Digest | Gone | Ends)
            self.receiver.take(node, frame, parts[1] if len(parts) > 1 else None)

    def run_until(self, is_so: object, what: str) -> None:
        """Turn until that is so."""
        assert callable(is_so)

        def looked() -> bool:
            self.turn()
            return bool(is_so())

        wait_until(looked, what)

    def has_all(self, source: Source) -> bool:
        """Whether it has committed all that the source has."""
        return bool(self.core.commit == source.end.index_)

    def close(self) -> None:
        """End the feed, and close the files."""
        self.receiver.close()
        self.peers.close()
        self._exchange.close()
        self.writer.close()
        self.page.close()

    def _carry_out(self, effects: Effects, entries: memoryview | None) -> None:
        for peer, message in effects.send:
            self.peers.send(peer, (encode_message(message),))
        if effects.commit is not None:
            position, term = self._exchange.position_behind(effects.commit)
            self.page.publish_committed(LogCursor(position, effects.commit, term))
        if effects.append is not None:
            assert entries is not None
            first, last = effects.append.first, effects.append.last
            verified = self._exchange.verify(entries, first, last)
            self.writer.append_entries(
                verified.entries, memoryview(verified.items), end=verified.end
            )
            self.writer.publish()
            self._exchange.end = verified.end
            end = LogCursor(verified.end.position, Index(last), verified.end.term)
            self.page.publish_durable(end, 1)
            self._carry_out(self.core.entries_held(self.core.node, last), None)


@contextmanager
def sources_made(*sources: Source) -> Iterator[None]:
    """They answer, and are closed at the end."""
    try:
        for source in sources:
            source.start()
        yield
    finally:
        for source in sources:
            source.close()


def source_of(stack: ExitStack, folder: Path, name: str = "n0", **how: Any) -> Source:
    made = Source(folder, name, **how)
    stack.enter_context(sources_made(made))
    return made


def copy_of(stack: ExitStack, folder: Path, *sources: Source, name: str = "m0") -> Copy:
    made = Copy(folder, *(source.url for source in sources), name=name)
    stack.callback(made.close)
    return made


def asked_url(mirror: Copy) -> str:
    """Who is asked now."""
    return mirror.peers._feed.look(Index(0), Position(0), 0.0)[0].url


def asked(
    source: Source, method: str, path: str, token: str, body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of an answer."""
    connection = http.client.HTTPConnection(source.url.removeprefix("http://"), timeout=30)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, body=body or None, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
