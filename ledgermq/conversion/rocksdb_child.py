"""Child process that prints the rows of one RocksDB.

RocksDB is C++, and reads what may be damaged: whatever it does with that, it does it here, within
bounds of memory and processor time, and the command that wants the rows gets an exit status.
``python -m ledgermq.conversion.rocksdb_child FOLDER BYTES``:

    FOLDER     the RocksDB, a copy: the library leaves a file of its own in it
    BYTES      most bytes of rows that are printed
    stdin      a line for each stretch of keys: column family, and what they begin with, hexadecimal
    stdout     for each row three lengths (big-endian, 4 bytes each), column family, key and value
    stderr     a line that says why the exit status is not 0

A column family that is not there has no rows, and ``*`` stands for all of them.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from struct import Struct

EXIT_DAMAGED = 3
EXIT_TOO_LARGE = 4
EXIT_NO_LIBRARY = 5
EXIT_NOT_PRINTED = 6

LENGTHS = Struct(">III")
ALL_FAMILIES = "*"

_MEMORY_MAX = 8 << 30
_PROCESSOR_MAX_S = 300


def print_rows(folder: str, bytes_max: int, stretches: list[tuple[str, bytes]]) -> int:
    """Print the rows of these stretches; the exit status."""
    left, target = bytes_max, sys.stdout.buffer
    try:
        for family, key, value in _rows(folder, stretches):
            left -= LENGTHS.size + len(key) + len(value)
            if left < 0:
                print(f"more than {bytes_max:,} bytes of rows", file=sys.stderr)
                return EXIT_TOO_LARGE
            target.write(LENGTHS.pack(len(family), len(key), len(value)) + family + key + value)
        target.flush()
    except ImportError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_LIBRARY
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        # What could not be printed would be tried again at the interpreter's end.
        os._exit(EXIT_NOT_PRINTED)
    except Exception as error:  # what RocksDB says of damage has no other type
        print(" ".join(str(error).split()), file=sys.stderr)
        return EXIT_DAMAGED
    return 0


def _rows(folder: str, stretches: list[tuple[str, bytes]]) -> Iterator[tuple[bytes, bytes, bytes]]:
    import rocksdict as rocks

    options = rocks.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_paranoid_checks(True)
    # A stop by force leaves a last record that is cut off, and nothing else.
    options.set_wal_recovery_mode(rocks.DBRecoveryMode.tolerate_corrupted_tail_records())
    families = rocks.Rdict.list_cf(folder, options)
    opened = rocks.Rdict(
        folder,
        options,
        column_families={name: rocks.Options(raw_mode=True) for name in families},
        access_type=rocks.AccessType.read_only(False),
    )
    for wanted, prefix in stretches:
        for name in families if wanted == ALL_FAMILIES else {wanted} & set(families):
            rows = opened.get_column_family(name).iter()
            rows.seek(prefix)
            while rows.valid() and (key := rows.key()).startswith(prefix):
                yield name.encode(), key, rows.value()
                rows.next()
            # Damage ends the rows without a word.
            rows.status()
    opened.close()


def main() -> int:
    """Do what the arguments say, within bounds."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_MAX_S, _PROCESSOR_MAX_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder, bytes_max = sys.argv[1:]
    stretches = []
    for line in sys.stdin:
        family, _, prefix = line.rstrip("\n").partition(" ")
        stretches.append((family, bytes.fromhex(prefix)))
    return print_rows(folder, int(bytes_max), stretches)


if __name__ == "__main__":
    sys.exit(main())
