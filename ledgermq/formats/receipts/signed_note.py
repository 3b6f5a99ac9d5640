"""Signed notes and their keys, as C2SP's signed-note has them (c2sp.org/signed-note), with Ed25519.

A note is a text that ends with a line's end, an empty line, and lines with signatures:

    — NAME BASE64(first 4 bytes of SHA-256(NAME \\n 0x01 KEY), signature)

A public key is ``NAME+HEX+BASE64(0x01 KEY)``, with the same 4 bytes in hexadecimal digits; a secret
one is ``PRIVATE+KEY+`` and the same, with the seed in the place of the key.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple, Self

from ledgermq.formats.ed25519 import PUBLIC_SIZE, SIGNATURE_SIZE, has_signed, signing_key
from ledgermq.model.errors import ConfigError, CorruptLogError

NOTE_SIZE_MAX = 64 * 1024
SIGNATURES_MAX = 16
"""Lines with signatures of a note; those of keys that are not asked for are passed by."""

NOTE_NAME_SIZE_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9_./:-]+")

_ED25519 = b"\1"
_BEGIN = "PRIVATE+KEY+"
_ID_SIZE = 4


class NoteKey(NamedTuple):
    """A public key, and the name of who signs with its other half."""

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        """The four bytes that stand before its signatures."""
        return _id_of(self.name, self.public)

    def as_text(self) -> str:
        """The key in one line, which ``read`` understands."""
        return f"{self.name}+{self.id.hex()}+{b64encode(_ED25519 + self.public).decode()}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The key in a line.

        Raises:
            ConfigError: it is none.
        """
        name, key_id, public = _parts(text.strip())
        found = cls(name, public)
        if key_id != found.id:
            raise ConfigError("not a public key of receipts: its id is another key's", name=name)
        return found


class NoteSigner:
    """The secret half of a key, in memory; ``key`` is the other one."""

    def __init__(self, name: str, seed: bytes) -> None:
        """Take it.

        Raises:
            ConfigError: the name cannot be one.
        """
        self._seed = seed
        self._signing = signing_key(seed)
        self.key = NoteKey(_checked_name(name), self._signing.public_key().public_bytes_raw())

    def as_text(self) -> str:
        """The secret key in one line, which ``read`` understands."""
        content = b64encode(_ED25519 + self._seed).decode()
        return f"{_BEGIN}{self.key.name}+{self.key.id.hex()}+{content}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The secret key in a line.

        Raises:
            ConfigError: it is none; says nothing of its content.
        """
        line = text.strip()
        if not line.startswith(_BEGIN):
            raise ConfigError("not a secret key of receipts", begins_with=_BEGIN)
        name, key_id, seed = _parts(line.removeprefix(_BEGIN))
        found = cls(name, seed)
        if key_id != found.key.id:
            raise ConfigError("not a secret key of receipts: its id is another key's", name=name)
        return found

    def signed(self, text: str) -> str:
        """``text``, whose last line has an end, as a note."""
        assert text.endswith("\n"), text
        return f"{text}\n{self._line(text)}"

    def countersigned(self, note: str) -> str:
        """A note of somebody else's, with the signature of this key behind the others."""
        text, _, lines = note.rpartition("\n\n")
        own = self._line(f"{text}\n")
        others = [line for line in lines.splitlines(keepends=True) if line != own]
        return f"{text}\n\n{''.join(others)}{own}"

    def _line(self, text: str) -> str:
        signature = b64encode(self.key.id + self._signing.sign(text.encode())).decode()
        return f"— {self.key.name} {signature}\n"


def note_text(note: str, keys: Iterable[NoteKey]) -> tuple[str, NoteKey]:
    """The text of a note, and which of ``keys`` has signed it.

    Raises:
        CorruptLogError: it is no note, or none of them has.
    """
    known = {(key.name, key.id): key for key in keys}
    if len(note) > NOTE_SIZE_MAX:
        raise CorruptLogError("note is too long", size=len(note), limit=NOTE_SIZE_MAX)
    text, gap, lines = note.rpartition("\n\n")
    signatures = lines.splitlines()
    if not gap or not lines.endswith("\n") or len(signatures) > SIGNATURES_MAX:
        raise CorruptLogError("not a signed note")
    content = f"{text}\n"
    others: list[str] = []
    for line in signatures:
        mark, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        decoded = _decoded(encoded)
        if mark != "—" or decoded is None or len(decoded) <= _ID_SIZE:
            raise CorruptLogError("not a signed note: a line is no signature")
        others.append(f"{name}+{decoded[:_ID_SIZE].hex()}")
        key = known.get((name, decoded[:_ID_SIZE]))
        if key is None or len(decoded) != _ID_SIZE + SIGNATURE_SIZE:
            continue
        if not has_signed(key.public, decoded[_ID_SIZE:], content.encode()):
            raise CorruptLogError("signature of a note is wrong", key=key.as_text())
        return content, key
    raise CorruptLogError(
        "note is signed by none of the keys",
        signed_by=", ".join(others) or "nobody",
        keys=", ".join(f"{name}+{id_.hex()}" for name, id_ in known),
    )


def _id_of(name: str, public: bytes) -> bytes:
    return sha256(f"{name}\n".encode() + _ED25519 + public).digest()[:_ID_SIZE]


def _checked_name(name: str) -> str:
    if len(name) > NOTE_NAME_SIZE_MAX or _NAME.fullmatch(name) is None:
        raise ConfigError(
            "not a name of a key of receipts",
            name=name[:NOTE_NAME_SIZE_MAX],
            allowed=f"1 to {NOTE_NAME_SIZE_MAX} of A-Z a-z 0-9 _ . / : -",
        )
    return name


def _parts(line: str) -> tuple[str, bytes, bytes]:
    """Name, id and content of a key in a line."""
    name, _, rest = line.partition("+")
    key_id, _, encoded = rest.partition("+")
    content = _decoded(encoded)
    is_one = content is not None and content[:1] == _ED25519 and len(content) == 1 + PUBLIC_SIZE
    if content is None or not is_one or re.fullmatch("[0-9a-f]{8}", key_id) is None:
        raise ConfigError("not a key of receipts: NAME+ID+BASE64, of Ed25519")
    return _checked_name(name), bytes.fromhex(key_id), content[1:]


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
