"""Place of pieces as the node reads it: by a cache on the disk, counted, and watched.

Since when the place refuses is known here, and told with each error. A place without a manifest is
one that is away, as a folder is on which nothing is mounted: to take it for an empty one would be
to pass messages over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from ledgermq.cold.disk_cache import DiskCache
from ledgermq.ipc.counters import ColdCounter, Counts
from ledgermq.model.errors import ColdAwayError, CorruptLogError, LedgerError, StorageError
from ledgermq.pipeline.pieces.piece_file import PieceFile, Ranges
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow, row_of
from ledgermq.pipeline.pieces.piece_places import MANIFEST, ReadPlace
from ledgermq.store.files.checked_document import decode_document
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.wire.cold_frames import RETRY_AFTER_MS

logger = logging.getLogger(__name__)


class WatchedPlace:
    """The real ``ReadPlace`` of a node.

    It may be used by several threads.

    Attributes:
        may_use_copy: the manifest that was read last is taken where the place does not give it: at
            a start, to know where queues begin.
        is_copy: the manifest that was read last was that copy.
    """

    def __init__(
        self,
        place: ReadPlace,
        cache: DiskCache,
        copy: Path,
        counts: Counts,
        *,
        epoch_ns: Callable[[], int],
    ) -> None:
        """Nothing is read yet.

        Args:
            copy: where the manifest is kept that was read last.
        """
        self._place = place
        self._cache = cache
        self._copy = copy
        self._counts = counts
        self._epoch_ns = epoch_ns
        self._lock = Lock()
        self._away_since_s = 0
        self._reason = ""
        self.may_use_copy = self.is_copy = False
        self._is_copy_refused = False

    def count(self, counter: ColdCounter, number: int = 1) -> None:
        """Add to a counter of the process, whose threads do so at once."""
        with self._lock:
            self._counts[counter] += number

    def as_text(self, name: str = "") -> str:
        """Where the file ``name`` is, or all of them."""
        return self._place.as_text(name)

    def away(self, error: LedgerError) -> ColdAwayError:
        """What those are told who wait for what the place refused with ``error``."""
        since_s = self._away_since_s or self._epoch_ns() // 1_000_000_000
        return ColdAwayError(
            f"cold storage away since {text_of(since_s)}: {error}",
            place=self.as_text(),
            setting="cold.place",
            retry_after_ms=RETRY_AFTER_MS,
        )

    def names(self, folder: str) -> list[str]:
        """Names right below ``folder``; see ``ReadPlace``."""
        with self._asked():
            return self._place.names(folder)

    def document(self, name: str) -> tuple[bytes, str]:
        """The content of a small file, and its version; one that is missing is an error.

        Raises:
            CorruptLogError, StorageError: as ``ReadPlace``; or the place has none, and there is
                no copy that may be taken.
        """
        try:
            with self._asked():
                found = self._place.document(name)
                if found is None:
                    raise StorageError(
                        "no manifest of pieces there: nothing was sealed there yet, or the place is"
                        " not what it was",
                        file=self.as_text(name),
                    )
                self.count(ColdCounter.PLACE_BYTES, len(found[0]))
        except StorageError:
            kept = read_file(self._copy) if self.may_use_copy else None
            if kept is None or not _is_whole(kept):
                raise
            self.is_copy = True
            return kept, ""
        assert name == MANIFEST, name
        self.is_copy = False
        if _is_whole(found[0]):
            self._keep_copy(found[0])
        return found

    def _keep_copy(self, content: bytes) -> None:
        """Keep what was read; a disk that refuses that is told of, and the place counts all the
        same: retention, which is to make room on a full disk, waits for what is told by it.
        """
        try:
            if read_file(self._copy) != content:
                replace_file(self._copy, content)
        except StorageError as error:
            if not self._is_copy_refused:
                logger.warning("copy of the manifest of pieces not kept: %s", error)
            self._is_copy_refused = True
            return
        self._is_copy_refused = False

    def ranges(self, name: str, size: int | None = None) -> Ranges:
        """The bytes of a file, which is asked for those that are not in the cache."""
        assert size is not None, name
        return _KeptRanges(self, self.as_text(name), size, lambda: self._place.ranges(name, size))

    def check(self, row: PieceRow) -> None:
        """Read a piece through, past the cache, and compare each part with its sum.

        Raises:
            CorruptLogError: it is missing, or not what was sealed; names the part.
            StorageError: the place refused.
        """
        with self._asked():
            ranges = self._place.ranges(row.name)
            piece = PieceFile(ranges, tail=row.tail)
            found = row_of(piece.footer, size=ranges.size, tail=piece.tail, edition=row.edition)
            if found != row:
                raise CorruptLogError(
                    "sealed piece is not the one that the manifest names", file=ranges.name
                )
            piece.check_sums()

    def keep(self, manifest: PieceManifest) -> None:
        """Have in the cache what is of pieces that the manifest names, and nothing else."""
        self._cache.keep(self.as_text(row.name) for row in manifest.rows)
        self._counts[ColdCounter.CACHE_BYTES] = self._cache.size

    def forget(self, piece: str) -> None:
        """What the cache has of a piece is not to be believed."""
        self._cache.forget(piece)

    def read(self, ranges: Callable[[], Ranges], piece: str, start: int, end: int) -> bytes:
        """Bytes of a piece, by the cache.

        Raises:
            CorruptLogError, StorageError: as ``ReadPlace``.
        """
        content = self._cache.get(piece, start, end)
        if content is None:
            with self._asked():
                content = ranges().read(start, end)
                self.count(ColdCounter.PLACE_BYTES, len(content))
            self._cache.put(piece, start, end, content)
            self._counts[ColdCounter.CACHE_BYTES] = self._cache.size
        return content

    @contextmanager
    def _asked(self) -> Iterator[None]:
        self.count(ColdCounter.PLACE_READS)
        try:
            yield
        except StorageError as error:
            self._note_refused(str(error))
            raise
        except OSError as error:
            self._note_refused(str(error))
            raise StorageError(
                "place of pieces refused",
                errno=error.errno,
                place=self.as_text(),
                reason=str(error),
            ) from error
        with self._lock:
            since_s, self._away_since_s = self._away_since_s, 0
        if since_s:
            self._counts[ColdCounter.AWAY_SINCE] = 0
            logger.info("cold storage is back: place=%s since=%s", self.as_text(), text_of(since_s))

    def _note_refused(self, reason: str) -> None:
        self.count(ColdCounter.PLACE_REFUSED)
        with self._lock:
            is_first = not self._away_since_s
            if is_first:
                self._away_since_s = self._epoch_ns() // 1_000_000_000
                self._counts[ColdCounter.AWAY_SINCE] = self._away_since_s
        if is_first:
            logger.error("cold storage away: place=%s reason=%s", self.as_text(), reason)


class _KeptRanges:
    """``Ranges``, which asks the place for what the cache does not have."""

    def __init__(
        self, place: WatchedPlace, name: str, size: int, ranges: Callable[[], Ranges]
    ) -> None:
        self._place = place
        self._ranges = ranges
        self.name = name
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        return self._place.read(self._ranges, self.name, start, end)


def _is_whole(document: bytes) -> bool:
    try:
        decode_document(document, file="")
    except CorruptLogError:
        return False
    return True


def text_of(epoch_s: int) -> str:
    """A time as errors tell it, in UTC."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
