"""Sealed piece codec: one file of a backup stream, of which every byte is vouched for.

    offset  size  field
    0       8     magic        b"LMQPIECE"
    8       1     version      2; 1 in a stream that was begun up to 0.3.1, and of ``about``
    9       1     cipher       1 AES-256-GCM, 2 none; 0 none, as it was written up to 0.3.0
    10      2     zeros
    12      4     header size  bytes of the header, big-endian
    16      8     key id       which key; zeros without a cipher
    24      32    salt         drawn anew for each piece
    56            header, sealed: a JSON object with ``name`` and ``size``, and what the piece says
                  blocks, sealed: ``size`` bytes of content, 4 MiB each, the last one what is left

A sealed part is what AES-GCM makes of its bytes (16 bytes longer), by a key that is derived of the
salt and the stream's own id (HKDF, SHA-256), with the part's number as nonce and the head as
associated data. So no two parts are sealed with the same key and nonce, and a part in the place of
another one, a piece under the name of another one, a piece of another stream and a piece that is
cut off are found, as every flipped byte is. The id stands in ``about``, which is bound to none, and
neither are pieces of version 1: in a stream that has an id, those are refused.

Without a cipher a sealed part is its bytes and the tag of AES-GCM over them as associated data, by
a key that is derived of the head and the id, which everybody can do: it finds the same, and keeps
nobody from writing another piece, as no digest would. BLAKE2b in its place (32 bytes, over the
head, the part's number and the bytes) took thirty times as long, and was most of what a stream cost
a node.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from struct import Struct
from typing import BinaryIO, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ledgermq.formats.digest import DIGEST_SIZE
from ledgermq.model.errors import ConfigError, CorruptLogError

PIECE_KEY_SIZE = 32
SEALED_BLOCK_SIZE = 4 << 20
HEADER_SIZE_MAX = 4 << 20
"""A thousand files of tables take a hundredth of it; a damaged size takes no memory."""

_HEAD = Struct(">8sBBHI8s32s")
_MAGIC = b"LMQPIECE"
_VERSION, _VERSION_OF_ANY = 2, 1
_DIGESTED, _AES, _TAGGED = 0, 1, 2
_PIECE_TAG_SIZE = 16
_TAG_SIZES = {_DIGESTED: DIGEST_SIZE, _AES: _PIECE_TAG_SIZE, _TAGGED: _PIECE_TAG_SIZE}
_CIPHER_AT = 9
_NO_KEY = bytes(8)

Header = dict[str, object]
Bytes = bytes | memoryview


class OpenedPiece(NamedTuple):
    """A piece that is being read: ``header`` is checked, ``content`` is checked as it is read."""

    header: Header
    content: Iterator[bytes]


def seal(
    name: str, header: Header, content: Bytes, *, key: bytes | None, stream: bytes = b""
) -> Iterator[Bytes]:
    """The bytes of the piece ``name``, one part after the other.

    Without a key parts are views of ``content``, which is copied nowhere.

    Args:
        header: what the piece says of itself, but for its name and size.
        key: ``PIECE_KEY_SIZE`` bytes; None: it is readable by anybody.
        stream: bytes that no other stream has; empty: it is a piece of any.
    """
    line = json.dumps({**header, "name": name, "size": len(content)}, sort_keys=True).encode()
    assert len(line) <= HEADER_SIZE_MAX, len(line)
    cipher = _TAGGED if key is None else _AES
    version = _VERSION if stream else _VERSION_OF_ANY
    named = _NO_KEY if key is None else key_id(key)
    head = _HEAD.pack(_MAGIC, version, cipher, 0, len(line), named, os.urandom(32))
    sealed = _sealer(head, key, stream)
    yield head
    yield from sealed(0, line)
    whole = memoryview(content)
    for number, at in enumerate(range(0, len(whole), SEALED_BLOCK_SIZE), 1):
        yield from sealed(number, whole[at : at + SEALED_BLOCK_SIZE])


def open_piece(
    file: BinaryIO, name: str, *, key: bytes | None, where: str, stream: bytes = b""
) -> OpenedPiece:
    """The piece ``name``, which ``file`` begins with and holds nothing behind.

    Args:
        stream: of which it must be; empty: of any.
        where: the file, as errors name it.

    Raises:
        ConfigError: it is encrypted and there is no key, or another one, or it is of another
            version; while the content is read, too:
        CorruptLogError: it is not what was written.
        OSError: it cannot be read.
    """
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise _corrupt(where)
    magic, version, cipher, zeros, size, named, _ = _HEAD.unpack(head)
    if magic != _MAGIC or cipher not in _TAG_SIZES or zeros or size > HEADER_SIZE_MAX:
        raise _corrupt(where)
    if version not in (_VERSION, _VERSION_OF_ANY):
        raise ConfigError(
            "piece of a backup stream of another version",
            file=where,
            version=version,
            expected=_VERSION,
        )
    if (version == _VERSION) is not bool(stream) or (stream and cipher == _DIGESTED):
        raise CorruptLogError("piece is none of this backup stream", file=where)
    if cipher != _AES and named == _NO_KEY:
        # Not so that who has a key takes what somebody else has put there.
        if key is not None:
            raise ConfigError("a piece of this backup stream is not encrypted", file=where)
    elif key is None:
        raise ConfigError("this backup stream is encrypted: say --key-file", file=where)
    elif named != key_id(key):
        raise ConfigError("this backup stream is encrypted with another key", file=where)
    opened = _opener(head, key, stream, where)
    tag_size = _TAG_SIZES[cipher]
    header = _header(opened(0, file.read(size + tag_size)), name, where)
    return OpenedPiece(header, _content(file, int(str(header["size"])), tag_size, opened, where))


def _content(
    file: BinaryIO, size: int, tag_size: int, opened: Callable[[int, bytes], bytes], where: str
) -> Iterator[bytes]:
    for number, at in enumerate(range(0, size, SEALED_BLOCK_SIZE), 1):
        wanted = min(SEALED_BLOCK_SIZE, size - at)
        yield opened(number, file.read(wanted + tag_size))
    if file.read(1):
        raise _corrupt(where)


def _header(line: bytes, name: str, where: str) -> Header:
    try:
        header: Header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _corrupt(where) from error
    size = header.get("size") if isinstance(header, dict) else None
    if not isinstance(size, int) or size < 0:
        raise _corrupt(where)
    if header.get("name") != name:
        raise CorruptLogError(
            "piece of a backup stream stands under another name",
            file=where,
            name=header.get("name"),
        )
    return header


def _sealer(
    head: bytes, key: bytes | None, stream: bytes
) -> Callable[[int, Bytes], tuple[Bytes, ...]]:
    box = _box(key, head, stream)
    if key is None:
        return lambda number, content: (content, box.encrypt(_nonce(number), b"", content))
    return lambda number, content: (box.encrypt(_nonce(number), content, head),)


def _opener(
    head: bytes, key: bytes | None, stream: bytes, where: str
) -> Callable[[int, bytes], bytes]:
    if key is None and head[_CIPHER_AT] == _DIGESTED:

        def compared(number: int, sealed: bytes) -> bytes:
            content = memoryview(sealed)[:-DIGEST_SIZE]
            if _digest(head, number, content) != sealed[-DIGEST_SIZE:]:
                raise _corrupt(where)
            return bytes(content)

        return compared
    box = _box(key, head, stream)

    def opened(number: int, sealed: bytes) -> bytes:
        try:
            if key is not None:
                return box.decrypt(_nonce(number), sealed, head)
            content = memoryview(sealed)[:-_PIECE_TAG_SIZE]
            box.decrypt(_nonce(number), sealed[-_PIECE_TAG_SIZE:], content)
            return bytes(content)
        except InvalidTag as error:
            raise _corrupt(where) from error

    return opened


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _box(key: bytes | None, head: bytes, stream: bytes) -> AESGCM:
    """The cipher with the key of one piece; without a key, with one made of its head, so that the
    piece is vouched for.
    """
    known, info = (head, b"ledgermq open piece") if key is None else (key, b"ledgermq piece")
    derived = HKDF(SHA256(), PIECE_KEY_SIZE, salt=head[-32:], info=info + stream).derive(known)
    return AESGCM(derived)


def key_id(key: bytes) -> bytes:
    """What names a key, and says nothing of it: eight bytes."""
    return hashlib.blake2b(key, digest_size=len(_NO_KEY), person=b"ledgermq key id").digest()


def _digest(head: bytes, number: int, content: Bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=DIGEST_SIZE)
    digest.update(number.to_bytes(8, "big"))
    digest.update(content)
    return digest.digest()


def _corrupt(where: str) -> CorruptLogError:
    return CorruptLogError("piece of a backup stream is not what was written", file=where)
