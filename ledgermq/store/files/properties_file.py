"""DLedger's two properties files: ``currterm`` and ``checkpoint``, as Java's ``Properties``.

    file        key             value
    currterm    currTerm        term, decimal
                voteLeader      node voted for in that term, empty = none
    checkpoint  committedIndex  index, decimal
                endIndex        index of the last entry, for information

DLedger writes them without an escape and without a date, in any order of lines, and replaces them
without a sync. A missing file is a term of 0 without a vote; an empty one is a loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INTEGER_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CurrentTerm:
    """Content of ``currterm``: the term, and whom this node voted for in it."""

    term: Term
    vote: NodeId | None


@dataclass(frozen=True, slots=True)
class DLedgerCheckpoint:
    """Content of DLedger's ``checkpoint``; ``NO_INDEX`` for what it does not say."""

    end: Index
    committed: Index


def encode_current_term(current: CurrentTerm) -> bytes:
    """The file's content."""
    assert current.vote is None or current.vote.isprintable(), current.vote
    return f"voteLeader={current.vote or ''}\ncurrTerm={current.term}\n".encode()


def decode_current_term(data: bytes, *, file: str = "") -> CurrentTerm:
    """The term and vote in the file's content.

    Raises:
        CorruptLogError: it has no term, perhaps because a crash left it empty.
    """
    lines = _lines(data, file)
    vote = lines.get("voteLeader")
    term = _integer(lines, "currTerm", file)
    if term is None or term < 0:
        raise CorruptLogError("no term", file=file, offset=0, field="currTerm", value=term)
    return CurrentTerm(Term(term), NodeId(vote) if vote else None)


def encode_dledger_checkpoint(checkpoint: DLedgerCheckpoint) -> bytes:
    """The file's content."""
    return f"committedIndex={checkpoint.committed}\nendIndex={checkpoint.end}\n".encode()


def decode_dledger_checkpoint(data: bytes, *, file: str = "") -> DLedgerCheckpoint:
    """The indexes in the file's content.

    Raises:
        CorruptLogError: a line or a number cannot be read.
    """
    lines = _lines(data, file)
    end = _integer(lines, "endIndex", file)
    committed = _integer(lines, "committedIndex", file)
    return DLedgerCheckpoint(
        NO_INDEX if end is None else Index(end),
        NO_INDEX if committed is None else Index(committed),
    )


def _lines(data: bytes, file: str) -> dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptLogError("not UTF-8", file=file, offset=error.start, field="text") from error
    lines: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t\f\r")
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise CorruptLogError(
                "not a line key=value", file=file, offset=0, field="line", number=number
            )
        lines[key.rstrip()] = value.lstrip()
    return lines


def _integer(lines: dict[str, str], key: str, file: str) -> int | None:
    text = lines.get(key)
    if text is None:
        return None
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not NO_INDEX <= value <= _INTEGER_MAX:
        raise CorruptLogError("not an integer", file=file, offset=0, field=key, value=text[:64])
    return value
