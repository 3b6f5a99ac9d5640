"""Place of pieces with a live log behind them: what is not sealed yet is sealed in memory.

So whoever reads pieces reads both as one. A position is in one of them: the log goes on where the
manifest ends, which was read before. What retention deletes meanwhile was sealed before, so then
the manifest is read again; what never was sealed is missing here as it is between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.model.config.settings import LogKind
from ledgermq.model.units import MIB
from ledgermq.pipeline.pieces.log_sealing import LogCut, SealSizes, check_same, cuts_behind
from ledgermq.pipeline.pieces.piece_file import BytesRanges, Ranges
from ledgermq.pipeline.pieces.piece_manifest import (
    PieceManifest,
    PieceRow,
    encode_manifest,
    read_manifest,
    row_of,
)
from ledgermq.pipeline.pieces.piece_places import MANIFEST, PIECES, ReadPlace, file_name
from ledgermq.pipeline.pieces.shared_cache import SharedCache
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import own_path

LIVE_SIZES = SealSizes(piece_bytes=16 * MIB)
"""Smaller than those that are put: each is made again when it has gone from memory."""

KEPT_BYTES = 64 * MIB
"""Bytes of pieces of the live log that stay in memory."""

TRIES_MAX = 10
"""Times that the manifest is read again because files have gone from the log meanwhile: retention
deletes a few at once, and then waits."""


class LivePlace:
    """``ReadPlace`` of what is sealed and of what is not."""

    def __init__(
        self,
        place: ReadPlace,
        reader: LogReader,
        committed: Callable[[LogReader], int],
        *,
        sizes: SealSizes = LIVE_SIZES,
    ) -> None:
        """Nothing is read yet; ``reader`` stays the caller's.

        Args:
            committed: position up to which the log is told of, after each refresh.
        """
        self._place = place
        self._reader = reader
        self._committed = committed
        self._sizes = sizes
        self._live: dict[str, tuple[LogCut, int]] = {}
        self._rows: dict[str, PieceRow] = {}
        self._made: SharedCache[str, bytes] = SharedCache(KEPT_BYTES, len)

    def as_text(self, name: str = "") -> str:
        return self._place.as_text(name)

    def names(self, folder: str) -> list[str]:
        return self._place.names(folder)

    def ranges(self, name: str, size: int | None = None) -> Ranges:
        live = self._live.get(name)
        if live is None:
            return self._place.ranges(name, size)
        cut, follows = live
        content = self._made.get(name, lambda: b"".join(cut.sealed(follows=follows).parts))
        return BytesRanges(content, f"{cut.span.path}@{cut.begin}")

    def document(self, name: str) -> tuple[bytes, str] | None:
        """The place's own document; the manifest names what is not sealed, too.

        Raises:
            ConfigError: nothing was sealed there, or another log.
            CorruptLogError: a record of the log is not whole.
            StorageError: place or log refused.
        """
        if name != MANIFEST:
            return self._place.document(name)
        manifest, rows = self._both()
        return encode_manifest(manifest._replace(rows=(*manifest.rows, *rows))), ""

    def _both(self) -> tuple[PieceManifest, list[PieceRow]]:
        manifest = read_manifest(self._place, is_sealed=True)
        for tries in range(TRIES_MAX):
            try:
                self._reader.refresh()
                rows = self._live_rows(manifest)
                first = int(self._reader.first)
            except VanishedError:
                if tries == TRIES_MAX - 1:
                    raise
                manifest = read_manifest(self._place, is_sealed=True)
                continue
            if first <= manifest.end:
                break
            # What is between them may have been sealed, and deleted then.
            again = read_manifest(self._place, is_sealed=True)
            if again.end == manifest.end:
                break
            manifest = again
        return manifest, rows

    def _live_rows(self, manifest: PieceManifest) -> list[PieceRow]:
        """Rows of what is not sealed; each is made once."""
        check_same(self._place, manifest, self._reader)
        follows, rows, live = manifest.end, {}, {}
        committed = self._committed(self._reader)
        for cut in cuts_behind(self._reader, manifest.end, committed, self._sizes):
            name = f"{PIECES}/{file_name(cut.begin, cut.end)}"
            row = self._rows.get(name)
            if row is None:
                sealed = cut.sealed(follows=follows)
                row = row_of(sealed.footer, size=sealed.size, tail=sealed.tail)
            rows[name], live[name] = row, (cut, follows)
            follows = cut.end
        self._rows, self._live = rows, live
        return list(rows.values())


def told_end(reader: LogReader) -> int:
    """Position up to which a store's files say that its log is committed: at most some seconds
    behind, where a node writes there.

    Raises:
        CorruptLogError: they cannot be read.
    """
    saved = dispatch_checkpoint.read(own_path(reader.directory.root))
    dispatched = -1 if saved is None else saved.position
    if reader.directory.log is LogKind.COMMITLOG and saved is not None:
        # What stands behind it may not be committed yet.
        return dispatched
    return max(dispatched, int(reader.committed_end()))
