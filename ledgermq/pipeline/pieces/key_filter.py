"""Key filter: which keys a row group of a piece surely does not have (a split-block Bloom filter).

A filter is blocks of 32 bytes, each eight 32-bit words, little-endian. A key belongs to one block,
and sets one bit in each of its words. What is hashed is what RocketMQ's index hashes, topic, ``#``
and key, into the same 31 bits; mixed to 64 of them, the upper half says the block, and the lower
one, times eight odd numbers, the bits. With ``BITS_PER_KEY`` one in some hundred keys that are not
there is looked for in vain.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.arrays import I64
from ledgermq.formats.java_hash import index_key_hash
from ledgermq.formats.kernels.kernel import hash_keys, java_hash

BITS_PER_KEY = 12
BLOCK_BYTES = 32

_WORDS = 8
_SPREAD = np.array(
    [
        *(0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F),
        *(0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09),
    ],
    np.uint32,
)
_MIX_FIRST, _MIX_SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Words = npt.NDArray[np.uint32]


def keys_of(table: pa.Table) -> Iterator[tuple[pa.Array, pa.StringArray]]:
    """The rows of ``table`` that have keys, and the keys of each: those of ``KEYS`` as the index
    splits them, and the client's own id. They come in arrays, one with the numbers of rows.

    Args:
        table: with ``topic``, ``keys`` and ``properties``.
    """
    keys = pc.split_pattern(table.column("keys"), " ").combine_chunks()
    ids = pc.map_lookup(table.column("properties"), "UNIQ_KEY", "first").combine_chunks()
    for rows, texts in (
        (pc.list_parent_indices(keys), pc.list_flatten(keys)),
        (pa.array(np.arange(len(ids), dtype=np.int64)), ids),
    ):
        is_there = pc.greater(pc.fill_null(pc.binary_length(texts), 0), 0)
        yield rows.filter(is_there), texts.filter(is_there)


def filter_of(table: pa.Table) -> bytes:
    """The filter of the keys in ``table``; empty without any."""
    topics = table.column("topic").combine_chunks()
    hashes = [_hashes(topics.take(rows), texts) for rows, texts in keys_of(table) if len(texts)]
    if not hashes:
        return b""
    distinct = np.unique(np.concatenate(hashes))
    blocks = -(-len(distinct) * BITS_PER_KEY // (8 * BLOCK_BYTES))
    words: Words = np.zeros((blocks, _WORDS), np.uint32)
    at, masks = _places(distinct, blocks)
    for word in range(_WORDS):
        np.bitwise_or.at(words[:, word], at, masks[:, word])
    return words.astype("<u4").tobytes()


def may_have(content: bytes | memoryview, topic: str, key: str) -> bool:
    """Whether a row group with that filter may have messages of ``topic`` with that key."""
    blocks = len(content) // BLOCK_BYTES
    if not blocks:
        return False
    at, masks = _places(np.array([index_key_hash(f"{topic}#{key}")], np.int64), blocks)
    words = np.frombuffer(content, "<u4", _WORDS, int(at[0]) * BLOCK_BYTES)
    return bool(((words & masks[0]) == masks[0]).all())


def _hashes(topics: pa.StringArray, keys: pa.StringArray) -> I64:
    """The hash of each key with its topic, as the index has it."""
    named = topics.dictionary_encode()
    numbers = named.indices.to_numpy(zero_copy_only=False)
    found = np.empty(len(keys), np.int64)
    for number, topic in enumerate(named.dictionary.to_pylist()):
        rows = np.flatnonzero(numbers == number)
        texts = pc.binary_join_element_wise(keys.take(pa.array(rows)).cast(pa.binary()), b"")
        _, places, content = texts.buffers()
        bounds = np.frombuffer(places, np.int32)[: len(rows) + 1].astype(np.int64)
        prefix = memoryview(f"{topic}#".encode())
        hashes = np.empty(len(rows), np.int64)
        starts, ends = np.ascontiguousarray(bounds[:-1]), np.ascontiguousarray(bounds[1:])
        seed = java_hash(prefix, 0, len(prefix), 0)
        hash_keys(memoryview(content).cast("B"), starts.data, ends.data, seed, hashes.data)
        found[rows] = hashes
    return found


def _places(hashes: I64, blocks: int) -> tuple[I64, Words]:
    """The block of each hash, and its bits in the words of that."""
    mixed = hashes.astype(np.uint64)
    mixed = (mixed + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFF_FFFF_FFFF_FFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_SECOND
    mixed ^= mixed >> np.uint64(31)
    at = ((mixed >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)).astype(np.int64)
    low = mixed.astype(np.uint32)
    bits = (low[:, None] * _SPREAD[None, :]) >> np.uint32(27)
    return at, np.uint32(1) << bits
