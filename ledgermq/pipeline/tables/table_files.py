"""Files of a table: where workers write them, and how those of this machine are made durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import FileIO as RawFile
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from ledgermq.pipeline.archive.archive_store import StagedFile
from ledgermq.store.files.disk_sync import sync_directory, sync_file

_FOR_WORKERS = ("adls.", "client.", "gcs.", "hdfs.", "s3.")
"""Properties that a worker needs to write a file; a catalog's address and keys are none."""


def local_path(location: str) -> Path | None:
    """The path of a location on this machine, or on a disk that all workers see; else None."""
    found = urlparse(location)
    if found.scheme in ("", "file") and not found.netloc:
        return Path(found.path)
    return None


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where the files of a run are written: no reader sees them before a snapshot names them.

    Attributes:
        root: location below which they stand.
        properties: of the store, keys among them where the catalog gives them.
    """

    root: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, root: str, properties: Mapping[str, object]) -> TableFiles:
        """Those of a table; ``properties`` are all that it and its catalog have."""
        return cls(
            root,
            {
                name: str(value)
                for name, value in properties.items()
                if name.startswith(_FOR_WORKERS)
            },
        )

    def as_text(self) -> str:
        """The location."""
        return self.root

    def location_of(self, path: str) -> str:
        """Where a file is, as the table has it."""
        return f"{self.root}/{path}"

    def io(self) -> PyArrowFileIO:
        """PyIceberg's files at the same place."""
        return PyArrowFileIO(dict(self.properties))

    def create(self, path: str) -> StagedFile:
        """A new file, to be written once; one of this machine is durable when it is closed, but for
        its name.
        """
        location = self.location_of(path)
        file = local_path(location)
        if file is None:
            stream = self.io().new_output(location).create()
            assert isinstance(stream, pa.NativeFile), type(stream)
            return StagedFile(stream, lambda: None)
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = file.open("xb", buffering=0)
        return StagedFile(opened, lambda: sync_file(opened.fileno()))

    def finish(self, paths: Iterable[str]) -> None:
        """Make the names durable."""
        files = [local_path(self.location_of(path)) for path in paths]
        folders = {folder for file in files if file for folder in list(file.parents)[:3]}
        for folder in sorted(folders):
            sync_directory(folder)


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's files, durable when they are closed where they are on this machine.

    So a catalog never names a document that a failure of the power has emptied.
    """

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        """A file to be written."""
        output = super().new_output(location)
        path = local_path(location)
        return output if path is None else _SyncedOutput(output, path)


class _SyncedOutput(OutputFile):
    def __init__(self, output: OutputFile, path: Path) -> None:
        super().__init__(output.location)
        self._output = output
        self._path = path

    def __len__(self) -> int:
        return len(self._output)

    def exists(self) -> bool:
        return self._output.exists()

    def to_input_file(self) -> InputFile:
        return self._output.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(self._output.create(overwrite), self._path)


class _SyncedStream:
    def __init__(self, stream: OutputStream, path: Path) -> None:
        self._stream = stream
        self._path = path

    def write(self, content: bytes) -> int:
        return self._stream.write(content)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        with RawFile(self._path, "rb") as written:
            sync_file(written.fileno())
        for folder in list(self._path.parents)[:3]:
            sync_directory(folder)

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
