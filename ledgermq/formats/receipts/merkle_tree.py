"""Merkle trees of RFC 6962, section 2.1: roots, proofs of inclusion and of consistency, and checks.

The checks are those of RFC 9162, sections 2.1.3.2 and 2.1.4.2, which replaces it: a proof is as
long as it has to be, or it is none. A tree is never there as a whole. What it was up to some size
is kept as its *peaks*: the roots of the largest complete subtrees from the left, at most 64 of
them; with the leaves that came since, every proof between then and now can be made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from ledgermq.formats.kernels.kernel import compiled_only

if TYPE_CHECKING:
    # Who checks a receipt has a client alone, and none of a node's libraries.
    import numpy as np
    import numpy.typing as npt

_trees = compiled_only("_trees")

HASH_SIZE = 32
SIZE_MAX = 1 << 62
"""Leaves of a tree."""

PROOF_MAX = 64
"""Hashes of a proof of inclusion; one of consistency has one more."""

_LEAF, _NODE = b"\0", b"\1"


def leaf_hash(content: bytes | memoryview) -> bytes:
    """The hash of a leaf."""
    return sha256(_LEAF + content).digest()


def _joined(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def _below(size: int) -> int:
    """The largest power of two below ``size``, which is 2 or more."""
    return 1 << (size - 1).bit_length() - 1


class Peaks:
    """A tree that grows, as its peaks.

    Attributes:
        size: leaves that it has.
        hashes: its peaks, the largest one first.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        """The tree that had these peaks.

        Raises:
            ValueError: they are not those of a tree of that size.
        """
        self.size, self.hashes = size, list(hashes)
        is_size = 0 <= size <= SIZE_MAX and len(self.hashes) == size.bit_count()
        if not is_size or any(len(one) != HASH_SIZE for one in self.hashes):
            raise ValueError(f"{len(self.hashes)} peaks of a tree of {size} leaves")

    # It grows, and so is no key.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Whether both are the same tree."""
        if not isinstance(other, Peaks):
            return NotImplemented
        return (self.size, self.hashes) == (other.size, other.hashes)

    def copy(self) -> Peaks:
        """Another one, which grows by itself."""
        return Peaks(self.size, self.hashes)

    def append(self, leaf: bytes) -> None:
        """Add the hash of a leaf."""
        size, hashes = self.size, self.hashes
        self.size = size + 1
        while size & 1:
            leaf = sha256(_NODE + hashes.pop() + leaf).digest()
            size >>= 1
        hashes.append(leaf)

    def extend(
        self,
        data: bytes | memoryview,
        starts: npt.NDArray[np.integer],
        sizes: npt.NDArray[np.integer],
    ) -> None:
        """Add leaves: what ``data`` has at ``starts``, so many bytes of each."""
        if _trees is None:
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                self.append(leaf_hash(data[start : start + size]))
            return
        peaks = _trees.add_leaves(
            data, starts.astype("i8"), sizes.astype("i8"), self.size, b"".join(self.hashes)
        )
        self.size += len(starts)
        self.hashes = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]

    def root(self) -> bytes:
        """The root of the tree."""
        if not self.hashes:
            return sha256(b"").digest()
        *others, found = self.hashes
        for one in reversed(others):
            found = _joined(one, found)
        return found


class GrownTree:
    """A tree of which the peaks at some size are known, and all leaves that came since."""

    def __init__(self, before: Peaks, leaves: Sequence[bytes]) -> None:
        """``leaves`` are hashes, and stand behind ``before``."""
        self.size = before.size + len(leaves)
        self._first = before.size
        self._known: dict[tuple[int, int], bytes] = {}
        at = 0
        for one in before.hashes:
            size = 1 << (before.size - at).bit_length() - 1
            self._known[at, at + size] = one
            at += size
        for number, leaf in enumerate(leaves, before.size):
            self._known[number, number + 1] = leaf

    def root(self) -> bytes:
        """The root of the tree."""
        return self._root(0, self.size) if self.size else sha256(b"").digest()

    def inclusion(self, index: int) -> list[bytes]:
        """The proof that a leaf is in the tree, one of those behind the known peaks."""
        assert self._first <= index < self.size, (self._first, index, self.size)
        found: list[bytes] = []
        begin, end = 0, self.size
        while end - begin > 1:
            middle = begin + _below(end - begin)
            if index < middle:
                found.append(self._root(middle, end))
                end = middle
            else:
                found.append(self._root(begin, middle))
                begin = middle
        return found[::-1]

    def consistency(self) -> list[bytes]:
        """The proof that the tree of the known peaks is the begin of this one."""
        old = self._first
        assert 0 < old <= self.size, (old, self.size)
        found: list[bytes] = []
        begin, end, is_told = 0, self.size, True
        while old != end:
            middle = begin + _below(end - begin)
            if old <= middle:
                found.append(self._root(middle, end))
                end = middle
            else:
                found.append(self._root(begin, middle))
                begin, is_told = middle, False
        if not is_told:
            found.append(self._root(begin, end))
        return found[::-1]

    def _root(self, begin: int, end: int) -> bytes:
        known = self._known.get((begin, end))
        if known is None:
            middle = begin + _below(end - begin)
            known = _joined(self._root(begin, middle), self._root(middle, end))
            self._known[begin, end] = known
        return known


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The proof that the leaf at ``index`` is in the tree of all these, which are hashes."""
    found: list[bytes] = []
    level = list(leaves)
    while len(level) > 1:
        if index ^ 1 < len(level):
            found.append(level[index ^ 1])
        rest = level[-1:] if len(level) & 1 else []
        level = [_joined(*pair) for pair in zip(level[::2], level[1::2], strict=False)] + rest
        index >>= 1
    return found


def included_root(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root of the tree of ``size`` leaves that has ``leaf`` at ``index``, as ``proof`` says;
    None: it can be the proof of no such leaf.
    """
    if not 0 <= index < size <= SIZE_MAX or not _are_hashes(proof):
        return None
    at, last, found = index, size - 1, leaf
    for one in proof:
        if last == 0:
            return None
        if at & 1 or at == last:
            found = _joined(one, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = _joined(found, one)
        at, last = at >> 1, last >> 1
    return found if last == 0 else None


def is_consistent(old: tuple[int, bytes], new: tuple[int, bytes], proof: Sequence[bytes]) -> bool:
    """Whether the tree of one size and root is the begin of another one, as ``proof`` says."""
    (old_size, old_root), (new_size, new_root) = old, new
    if not 0 < old_size <= new_size <= SIZE_MAX or not _are_hashes(proof):
        return False
    if old_size == new_size:
        return not proof and old_root == new_root
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    if not path:
        return False
    at, last = old_size - 1, new_size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    first = second = path[0]
    for one in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            first, second = _joined(one, first), _joined(one, second)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            second = _joined(second, one)
        at, last = at >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def _are_hashes(proof: Sequence[bytes]) -> bool:
    return len(proof) <= PROOF_MAX + 1 and all(len(one) == HASH_SIZE for one in proof)
