"""Repository of streams by the name that an operator gives it: a folder, or a prefix of a bucket.

    backup stream … /backup/orders              a folder
    backup stream … s3://BUCKET/backups/orders  objects whose keys begin so

Below it each stream has a folder of its own, which is called after its member.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ledgermq.buckets.bucket_address import BucketPlace, is_address, parse_address
from ledgermq.conversion.stream.piece_folder import ABOUT, PieceFolder, PiecePlace
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.file_names import is_of_others

if TYPE_CHECKING:
    from ledgermq.conversion.stream.piece_bucket import PieceBucket

STREAMS_MAX = 1_000
"""Most streams of a repository: more folders are something else, and each would be asked for what
it is."""


class StreamPlaces(Protocol):
    """Where the streams of a repository are."""

    def as_text(self) -> str:
        """The place as the operator has named it."""
        ...

    def streams(self) -> dict[str, PiecePlace]:
        """The streams that are there, by their names; one that is named itself, alone.

        Raises:
            ConfigError: it is no place of a repository.
            StorageError: the place refused.
        """
        ...

    def writable(self, name: str) -> PiecePlace:
        """Where the stream ``name`` may put pieces.

        Raises:
            ConfigError: the store does not keep to conditions.
            StorageError: the place refused.
        """
        ...


def places_at(text: str) -> StreamPlaces:
    """The repository ``text``: a path, or ``s3://BUCKET/PREFIX``.

    Raises:
        ConfigError: it is an address of something else, or the store's client is not installed.
    """
    if not is_address(text):
        return FolderPlaces(Path(text))
    return BucketPlaces(parse_address(text, of="a repository of backup streams"))


class FolderPlaces:
    """``StreamPlaces`` in a folder."""

    def __init__(self, root: Path) -> None:
        """The folder ``root``, which need not be there."""
        self._root = root

    def as_text(self) -> str:
        return str(self._root)

    def streams(self) -> dict[str, PiecePlace]:
        root = self._root
        if (root / ABOUT).is_file():
            return {root.name: PieceFolder(root)}
        if not root.is_dir():
            return {}
        folders = (path for path in root.iterdir() if not is_of_others(path.name))
        return {path.name: PieceFolder(path) for path in folders if (path / ABOUT).is_file()}

    def writable(self, name: str) -> PiecePlace:
        """Where the stream ``name`` may put pieces; what a killed stream left there is swept up."""
        place = PieceFolder(self._root / name)
        place.sweep()
        return place


class BucketPlaces:
    """``StreamPlaces`` below a prefix of a bucket."""

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: the store's client is not installed, or does not take the place.
        """
        self._place = place
        self._own = _pieces(place)

    def as_text(self) -> str:
        return self._own.as_text()

    def streams(self) -> dict[str, PiecePlace]:
        if ABOUT in self._own.names(""):
            return {Path(self._place.prefix).name: self._own}
        found: dict[str, PiecePlace] = {}
        for number, name in enumerate(self._own.folders(), 1):
            if number > STREAMS_MAX:
                raise ConfigError(
                    "too many folders for a repository of backup streams",
                    repository=self.as_text(),
                    allowed=STREAMS_MAX,
                )
            pieces = _pieces(self._place.below(name))
            if ABOUT in pieces.names(""):
                found[name] = pieces
        return found

    def writable(self, name: str) -> PiecePlace:
        place = _pieces(self._place.below(name))
        place.check_conditions()
        return place


def _pieces(place: BucketPlace) -> PieceBucket:
    # With it comes the store's client, which most have not, and which takes its time.
    from ledgermq.conversion.stream.piece_bucket import PieceBucket

    return PieceBucket(place)
