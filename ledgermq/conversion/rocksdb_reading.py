"""Reading of a RocksDB that RocketMQ 5 wrote: in a child process, on a copy, within bounds.

The library opens nothing in the store: it leaves a file of its own where it reads, and what it does
with damage is C++'s matter. So files of rows are links, all others are copied, and a process of its
own reads them (``rocksdb_child.py``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ledgermq.conversion.rocksdb_child import (
    ALL_FAMILIES,
    EXIT_NO_LIBRARY,
    EXIT_NOT_PRINTED,
    EXIT_TOO_LARGE,
    LENGTHS,
)
from ledgermq.formats.rocksdb_rows import KeyedRow
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError

ROWS_BYTES_MAX = 1 << 30
"""Most bytes of rows that are read of one RocksDB: a million topics have a quarter of it."""

COPY_BYTES_MAX = 1 << 30
"""Most bytes of a RocksDB that are copied: all but its sorted files, which are links."""

SECONDS_MAX = 300
"""Longest time that one reading takes."""

EVERYTHING = (ALL_FAMILIES, b"")
"""The stretch of all rows of all column families."""

_SORTED = ".sst"
_TRIES_BESIDE_BROKER = 3
_TRY_PAUSE_S = 0.5
_COPIED_NAMES_MAX = 100_000


def read_rows(
    folder: Path, stretches: Iterable[tuple[str, bytes]], *, is_open: bool = False
) -> Iterator[KeyedRow]:
    """The rows of a RocksDB whose keys begin with one of these, in column families of that name.

    Nothing in ``folder`` is changed.

    Args:
        is_open: a broker writes to it meanwhile, so that files may go while they are copied: it is
            tried again.

    Raises:
        ConfigError: the library is not installed; names the extra.
        CorruptLogError: it is damaged, or larger than is read; names the folder, and what RocksDB
            said.
        StorageError: the operating system refused; or the reading took too long.
    """
    wanted = "".join(f"{family} {prefix.hex()}\n" for family, prefix in stretches)
    with tempfile.TemporaryFile(prefix="ledgermq-rocksdb-") as rows:
        for left in range(_TRIES_BESIDE_BROKER if is_open else 1, 0, -1):
            try:
                _read_copy(folder, wanted, rows)
                break
            except FileNotFoundError as error:
                if left == 1:
                    raise _refused(folder, error) from error
            except OSError as error:
                raise _refused(folder, error) from error
            except CorruptLogError:
                if left == 1:
                    raise
            time.sleep(_TRY_PAUSE_S)
        yield from _decoded(rows)


def _refused(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        "RocketMQ's RocksDB not read",
        errno=error.errno,
        folder=str(folder),
        reason=error.strerror,
    )


def _read_copy(folder: Path, wanted: str, rows: BinaryIO) -> None:
    rows.seek(0)
    rows.truncate()
    with tempfile.TemporaryDirectory(prefix="ledgermq-rocksdb-") as scratch:
        copy = Path(scratch, "copy")
        _copy(folder, copy)
        _read(folder, copy, wanted, rows)
    rows.seek(0)


def _copy(folder: Path, copy: Path) -> None:
    copy.mkdir()
    names = sorted(path.name for path in folder.iterdir())
    if len(names) > _COPIED_NAMES_MAX:
        raise CorruptLogError(
            "RocketMQ's RocksDB has too many files",
            folder=str(folder),
            files=len(names),
            limit=_COPIED_NAMES_MAX,
        )
    left = COPY_BYTES_MAX
    for name in names:
        source = folder / name
        if not source.is_file():
            continue
        if source.suffix == _SORTED:
            (copy / name).symlink_to(source.resolve())
            continue
        left -= source.stat().st_size
        if left < 0:
            raise CorruptLogError(
                "RocketMQ's RocksDB is too large to be copied: stop the broker in order",
                folder=str(folder),
                file=name,
                limit=COPY_BYTES_MAX,
            )
        shutil.copyfile(source, copy / name)


def _read(folder: Path, copy: Path, wanted: str, rows: BinaryIO) -> None:
    command = [sys.executable, "-m", "ledgermq.conversion.rocksdb_child"]
    try:
        done = subprocess.run(  # noqa: S603 - a program of ours, without a shell
            [*command, str(copy), str(ROWS_BYTES_MAX)],
            input=wanted.encode(),
            stdout=rows,
            stderr=subprocess.PIPE,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StorageError(
            "RocketMQ's RocksDB not read in time", folder=str(folder), limit_s=SECONDS_MAX
        ) from error
    lines = done.stderr.decode(errors="replace").splitlines() or [""]
    if done.returncode == EXIT_NO_LIBRARY:
        raise ConfigError(
            "tables in RocksDB need the Python package rocksdict: pip install 'ledgermq[rocksdb]';"
            " the Debian package has no such library",
            folder=str(folder),
            reason=lines[-1],
        )
    if done.returncode == EXIT_NOT_PRINTED:
        raise StorageError(
            "rows of RocketMQ's RocksDB not written to the temporary folder (TMPDIR)",
            folder=str(folder),
            reason=lines[-1],
        )
    if done.returncode == EXIT_TOO_LARGE:
        raise CorruptLogError(
            "RocketMQ's RocksDB has too many rows",
            folder=str(folder),
            limit=ROWS_BYTES_MAX,
        )
    if done.returncode:
        reason = lines[-1].replace(str(copy), str(folder))[:500]
        raise CorruptLogError(
            "RocketMQ's RocksDB is damaged",
            folder=str(folder),
            reason=reason or f"the process that read it ended with status {done.returncode}",
        )


def _decoded(rows: BinaryIO) -> Iterator[KeyedRow]:
    while head := rows.read(LENGTHS.size):
        family, key, value = (rows.read(size) for size in LENGTHS.unpack(head))
        yield KeyedRow(family.decode(), key, value)
