"""Selection of the kernels: compiled where they could be built, else the same files uncompiled.

``LEDGERMQ_PURE=1`` in the environment forces the plain ones, to measure and to look for a fault.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import TypeVar

_Any = TypeVar("_Any")

_NAMES = (
    "ledgermq.formats.kernels._scan",
    "ledgermq.formats.kernels._link",
    "ledgermq.formats.kernels._stamp",
    "ledgermq.formats.kernels._ids",
    "ledgermq.formats.kernels._columns",
    "ledgermq.formats.kernels._units",
    "ledgermq.formats.kernels._headers",
    "ledgermq.formats.kernels._sends",
    "ledgermq.formats.kernels._pulls",
    "ledgermq.formats.kernels._rows",
    "ledgermq.formats.kernels._steady",
    "ledgermq.formats.kernels._lone",
    "ledgermq.formats.kernels._exchange",
)


def load_plain(name: str) -> ModuleType:
    """A fresh copy of the kernel ``name``, uncompiled, whatever is built beside it."""
    path = Path(__file__).with_name(name.rpartition(".")[2] + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled_only(name: str) -> ModuleType | None:
    """The kernel ``name``, which has no plain form; None where it is not built, or plain ones are
    wanted: whoever asks does the same another way.
    """
    if os.environ.get("LEDGERMQ_PURE") == "1":
        return None
    try:
        return importlib.import_module(f"ledgermq.formats.kernels.{name}")
    except ImportError:
        return None


_TYPES = (
    "Py_ssize_t", "bint", "const", "double", "int", "longlong", "p_uchar", "p_uint", "size_t",
    "uchar", "uint", "ulonglong", "void",
)  # fmt: skip


class _Type:
    """A type of C, or an array of such."""

    def __getitem__(self, _index: object) -> _Type:
        return self


def _unchanged(decorated: _Any) -> _Any:
    return decorated


def _exceptval(_value: object = None, check: bool = True) -> Callable[[_Any], _Any]:
    return _unchanged


def _cast(_type: object, value: _Any) -> _Any:
    return value


def _declare(_type: object = None, value: object = None, **_words: object) -> object:
    return value


def _module() -> ModuleType:
    module = ModuleType("cython")
    words = dict.fromkeys(("cclass", "cfunc", "inline"), _unchanged)
    vars(module).update(
        words, compiled=False, cast=_cast, declare=_declare, exceptval=_exceptval,
        **dict.fromkeys(_TYPES, _Type()),
    )  # fmt: skip
    return module


def _is_installed() -> bool:
    # It is not imported: compiled kernels do without.
    try:
        return importlib.util.find_spec("cython") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def _cython_or_stand_in() -> Iterator[None]:
    """While kernels are imported there is a module ``cython``; others never see the stand-in.

    A client needs pyzmq alone, and its wheel for any machine has plain kernels: what they take from
    Cython are types, which mean nothing there, and decorators, which change nothing.
    """
    if "cython" in sys.modules or _is_installed():
        yield
        return
    sys.modules["cython"] = _module()
    try:
        yield
    finally:
        del sys.modules["cython"]


with _cython_or_stand_in():
    for _name in _NAMES:
        if os.environ.get("LEDGERMQ_PURE") == "1":
            sys.modules[_name] = load_plain(_name)
        else:
            importlib.import_module(_name)

from ledgermq.formats.kernels import _rows, _stamp  # noqa: E402
from ledgermq.formats.kernels._columns import (  # noqa: E402
    find_other,
    find_property,
    join_slices,
    read_heads,
    split_properties,
)
from ledgermq.formats.kernels._exchange import Exchange, join_frame  # noqa: E402
from ledgermq.formats.kernels._headers import scan_header  # noqa: E402
from ledgermq.formats.kernels._ids import (  # noqa: E402
    compare_ids,
    find_ids,
    find_keys,
    put_ids,
    scan_ids,
    text_hash,
)
from ledgermq.formats.kernels._link import link_keys, set_slots  # noqa: E402
from ledgermq.formats.kernels._lone import (  # noqa: E402
    read_plain,
    write_batch,
    write_record,
)
from ledgermq.formats.kernels._pulls import choose_units, join_records, match_heads  # noqa: E402
from ledgermq.formats.kernels._rows import (  # noqa: E402
    measure_rows,
    spread_records,
    write_rows,
)
from ledgermq.formats.kernels._scan import (  # noqa: E402
    dispatch_span,
    first_delayed,
    hash_keys,
    java_hash,
    scan_entries,
)
from ledgermq.formats.kernels._sends import scan_send, send_record  # noqa: E402
from ledgermq.formats.kernels._stamp import (  # noqa: E402
    check_run,
    stamp_run,
    verify_span,
    walk_records,
    whole_records,
)
from ledgermq.formats.kernels._steady import SteadyLine  # noqa: E402
from ledgermq.formats.kernels._units import measure_units, write_units  # noqa: E402
from ledgermq.formats.kernels.crc32 import native_address  # noqa: E402

_stamp.use_native_crc32(native_address())
_rows.use_native_crc32(native_address())

__all__ = [
    "MALFORMED",
    "NO_UNIT",
    "Exchange",
    "ScanStatus",
    "SteadyLine",
    "check_run",
    "choose_units",
    "compare_ids",
    "compiled",
    "compiled_only",
    "dispatch_span",
    "find_ids",
    "find_keys",
    "find_other",
    "find_property",
    "first_delayed",
    "hash_keys",
    "java_hash",
    "join_frame",
    "join_records",
    "join_slices",
    "link_keys",
    "load_plain",
    "match_heads",
    "measure_rows",
    "measure_units",
    "put_ids",
    "read_heads",
    "read_plain",
    "scan_entries",
    "scan_header",
    "scan_ids",
    "scan_send",
    "send_record",
    "set_slots",
    "split_properties",
    "spread_records",
    "stamp_run",
    "text_hash",
    "verify_span",
    "walk_records",
    "whole_records",
    "write_batch",
    "write_record",
    "write_rows",
    "write_units",
]

_WITHOUT_PLAIN_FORM = ("_secure", "_wait", "_produce", "_trees")

compiled: bool = not any(
    str(sys.modules[name].__file__).endswith(".py") for name in _NAMES
) and all(
    importlib.util.find_spec(f"ledgermq.formats.kernels.{name}") for name in _WITHOUT_PLAIN_FORM
)
"""Whether the machine code runs."""

SCAN_ROWS = 16_384
"""Messages that are scanned at once: their columns stay in the processor's second cache."""

NO_UNIT = -1
"""Group of a message that has no queue unit: prepared, or rolled back."""

MALFORMED = -2
"""Group of a message that cannot be parsed."""


class ScanStatus(IntEnum):
    """Why ``scan_entries`` ended; all from ``BAD_MAGIC`` on name the field that is wrong."""

    END = 0
    FULL = 1
    CUT = 2
    BAD_MAGIC = 3
    BAD_SIZE = 4
    BAD_POSITION = 5
    BAD_BODY_SIZE = 6
    BAD_MESSAGE_MAGIC = 7
    BAD_MESSAGE_SIZE = 8
    BAD_BLANK = 9

    @property
    def corrupt(self) -> bool:
        """Whether bytes are not what belongs there, rather than missing."""
        return self >= ScanStatus.BAD_MAGIC
