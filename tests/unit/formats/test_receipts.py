"""Receipts: the trees of RFC 6962, notes of another program, and what attackers do to them."""

from __future__ import annotations

import json
import random
from hashlib import sha256

import numpy as np
import pytest

from ledgermq.formats.kernels.kernel import compiled_only
from ledgermq.formats.receipts import merkle_tree
from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint, SignedHead, SignedStretch
from ledgermq.formats.receipts.merkle_tree import (
    GrownTree,
    Peaks,
    included_root,
    inclusion_proof,
    is_consistent,
    leaf_hash,
)
from ledgermq.formats.receipts.receipt import RECEIPT_SIZE_MAX, Receipt
from ledgermq.formats.receipts.signed_note import NoteKey, NoteSigner, note_text
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.errors import ConfigError, CorruptLogError

SIZES = 40
LEAVES = [leaf_hash(b"%d" % number) for number in range(SIZES)]

ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
"""Of the leaves below, as the implementations of Certificate Transparency have them."""
RFC_LEAVES = (
    *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
    "606162636465666768696a6b6c6d6e6f",
)

GO_PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
GO_NOTE = (
    f"{GO_TEXT}\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNX"
    "gKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
"""The example of Go's package golang.org/x/mod/sumdb/note."""

SIGNER = NoteSigner("orders-a", bytes(range(32)))
KEYS = (SIGNER.key,)


def grown(size: int) -> Peaks:
    tree = Peaks()
    for leaf in LEAVES[:size]:
        tree.append(leaf)
    return tree


def plain_root(leaves: list[bytes]) -> bytes:
    """As the RFC defines it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    middle = 1
    while 2 * middle < len(leaves):
        middle *= 2
    halves = plain_root(leaves[:middle]) + plain_root(leaves[middle:])
    return sha256(b"\1" + halves).digest()


@pytest.mark.skipif(compiled_only("_trees") is None, reason="kernels are plain")
def test_the_kernel_and_the_plain_loop_grow_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(50)
    data = chance.randbytes(20_000)
    compiled, plain = Peaks(), Peaks()
    for count in (0, 1, 2, 3, 64, 1, 0, 129):
        sizes = np.array([chance.choice((0, 1, 55, 56, 64, 400)) for _ in range(count)], np.uint32)
        starts = np.array([chance.randrange(len(data) - int(size)) for size in sizes], np.uint32)
        compiled.extend(memoryview(data), starts, sizes)
        with monkeypatch.context() as patch:
            patch.setattr(merkle_tree, "_trees", None)
            plain.extend(memoryview(data), starts, sizes)
        assert compiled == plain
        assert compiled.root() == plain.root()
    assert compiled.size == 200


@pytest.mark.skipif(compiled_only("_trees") is None, reason="kernels are plain")
@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 101), (100, 1), (1, -1), (2**62, 2**62)])
def test_the_kernel_reads_nothing_beyond_its_data(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="not within the data"):
        Peaks().extend(bytes(100), np.array([start]), np.array([size]))


def test_roots_are_those_of_certificate_transparency() -> None:
    tree = Peaks()
    assert tree.root().hex() == ROOTS[0]
    for size, text in enumerate(RFC_LEAVES, 1):
        tree.append(leaf_hash(bytes.fromhex(text)))
        assert tree.root().hex() == ROOTS[size]


def test_each_proof_of_each_size_holds_and_none_that_is_longer_or_shorter() -> None:
    for size in range(1, SIZES + 1):
        root = plain_root(LEAVES[:size])
        for old in range(size + 1):
            tree = GrownTree(grown(old), LEAVES[old:size])
            assert tree.root() == grown(size).root() == root
            for index in range(old, size):
                proof = tree.inclusion(index)
                assert proof == inclusion_proof(LEAVES[:size], index)
                assert included_root(LEAVES[index], index, size, proof) == root
                assert included_root(LEAVES[index], index, size, [*proof, root]) is None
                assert included_root(LEAVES[index - 1], index, size, proof) != root or size == 1
                if proof:
                    assert included_root(LEAVES[index], index, size, proof[:-1]) != root
            if old:
                proof = tree.consistency()
                before = grown(old).root()
                assert is_consistent((old, before), (size, root), proof)
                assert not is_consistent((old, before), (size, root), [*proof, root])
                assert not is_consistent((old, leaf_hash(b"x")), (size, root), proof)
                assert not is_consistent((old, before), (size, leaf_hash(b"x")), proof)
    assert included_root(LEAVES[0], 1, 1, []) is included_root(LEAVES[0], -1, 4, []) is None
    assert not is_consistent((2, LEAVES[0]), (1, LEAVES[0]), [])


def test_notes_are_those_that_go_signs() -> None:
    key, signer = NoteKey.read(GO_PUBLIC), NoteSigner.read(GO_SECRET)
    assert (signer.key, signer.as_text(), key.as_text()) == (key, GO_SECRET, GO_PUBLIC)
    assert signer.signed(GO_TEXT) == GO_NOTE
    assert note_text(GO_NOTE, [SIGNER.key, key]) == (GO_TEXT, key)
    # Beside signatures of others, too.
    both = f"{GO_NOTE}{SIGNER.signed(GO_TEXT).rpartition(chr(10) * 2)[2]}"
    assert note_text(both, KEYS) == (GO_TEXT, SIGNER.key)
    assert SIGNER.countersigned(GO_NOTE) == SIGNER.countersigned(both) == both
    for text in (GO_PUBLIC[:-2], GO_PUBLIC.replace("c74f", "c74e"), "", "a+b", GO_SECRET):
        with pytest.raises(ConfigError):
            NoteKey.read(text)


def made(messages: int = 7, *, since: int = 0) -> tuple[Receipt, SignedHead]:
    """A receipt of the fourth message of the second of three stretches, in a tree of 12."""
    records = [
        encode_message(
            Message(topic="orders", queue_id=3, body=b"body %d" % number, queue_offset=20 + number)
        )
        for number in range(messages)
    ]
    leaves = [leaf_hash(record) for record in records]
    tree = Peaks()
    for leaf in leaves:
        tree.append(leaf)
    stretch = SignedStretch("orders", 3, 20, 20 + messages, tree.root())
    others = [SignedStretch("orders", number, 5, 6, LEAVES[number]) for number in (1, 2)]
    checkpoint = ReceiptCheckpoint(100, 900, grown(9), (others[0], stretch, others[1]), "")
    after = checkpoint.after()
    head = SignedHead.signed(
        SIGNER, after.size, after.root(), at_ms=1_700_000_000_000, position=900
    )
    checkpoint = ReceiptCheckpoint.decode(checkpoint._replace(note=head.note).encoded())
    assert checkpoint.head(KEYS) == head
    receipt = Receipt(
        records[3],
        stretch,
        tuple(inclusion_proof(leaves, 3)),
        10,
        tuple(checkpoint.tree().inclusion(10)),
        head.note,
    )
    if since:
        rest = [*LEAVES[since:9], *(one.leaf() for one in checkpoint.stretches)]
        proof = tuple(GrownTree(grown(since), rest).consistency())
        receipt = receipt._replace(since_size=since, since=proof)
    return Receipt.decode(receipt.encoded()), head


def head_of(size: int, root: bytes, signer: NoteSigner = SIGNER) -> SignedHead:
    return SignedHead.signed(signer, size, root, at_ms=1, position=1)


def test_a_receipt_proves_its_message_and_no_byte_of_it_may_be_another() -> None:
    receipt, head = made()
    proven = receipt.verified(KEYS)
    assert (bytes(proven.message.body), proven.head) == (b"body 3", head)
    chance = random.Random(50)
    text = receipt.encoded()
    for _ in range(2_000):
        at, kind = chance.randrange(len(text)), chance.randrange(3)
        forged = (
            text[:at] + chr(chance.randrange(32, 127)) + text[at + 1 :],
            text[:at],
            text[:at] + text[at + chance.randrange(1, 40) :],
        )[kind]
        try:
            found = Receipt.decode(forged).verified(KEYS)
        except CorruptLogError:
            continue
        assert bytes(found.message.body) == b"body 3"
        assert found.message == proven.message
        assert (found.head.size, found.head.root) == (head.size, head.root)


def test_what_was_signed_for_another_place_or_by_another_key_proves_nothing() -> None:
    receipt, head = made()
    stretch = receipt.stretch
    forged = [
        receipt._replace(record=receipt.record.replace(b"body 3", b"body 4")),
        receipt._replace(record=receipt.record + receipt.record),
        receipt._replace(stretch=stretch._replace(first=stretch.first - 1, end=stretch.end - 1)),
        receipt._replace(stretch=stretch._replace(topic="other")),
        receipt._replace(stretch=stretch._replace(end=stretch.end + 1)),
        receipt._replace(place=9),
        receipt._replace(place=-1),
        receipt._replace(place=1 << 70),
        receipt._replace(in_tree=receipt.in_tree[:-1]),
        receipt._replace(note=head_of(head.size + 1, head.root).note),
        receipt._replace(note=head_of(0, head.root).note),
        # The stretch's own tree is none that was signed.
        receipt._replace(note=head_of(1, stretch.root).note, in_tree=(), place=0),
    ]
    for one in forged:
        with pytest.raises(CorruptLogError):
            one.verified(KEYS)
    other = NoteSigner("orders-a", bytes(32))
    with pytest.raises(CorruptLogError, match="signed by none of the keys"):
        receipt.verified([other.key])
    renamed = NoteKey("orders-b", SIGNER.key.public)
    with pytest.raises(CorruptLogError, match="signed by none of the keys"):
        receipt.verified([renamed])
    # The same key, which says to sign for another log.
    elsewhere = head.note.replace("orders-a\n12", "orders-b\n12")
    with pytest.raises(CorruptLogError, match="signature of a note is wrong"):
        receipt._replace(note=elsewhere).verified(KEYS)


def test_a_checkpoint_has_to_go_on_from_the_one_that_was_kept() -> None:
    for since in range(1, 10):
        receipt, _ = made(since=since)
        kept = head_of(since, grown(since).root())
        receipt.verified(KEYS, since=kept)
        with pytest.raises(CorruptLogError, match="not shown to go on"):
            receipt.verified(KEYS, since=head_of(since, LEAVES[7]))
        with pytest.raises(CorruptLogError, match="not shown to go on"):
            receipt.verified(KEYS, since=head_of(since + 1, grown(since + 1).root()))
    receipt, head = made()
    receipt.verified(KEYS, since=head)
    with pytest.raises(CorruptLogError, match="older than the one that is known"):
        receipt.verified(KEYS, since=head_of(head.size + 1, head.root))
    with pytest.raises(CorruptLogError, match="not shown to go on"):
        receipt.verified(KEYS, since=head_of(head.size, LEAVES[0]))


def test_what_is_too_much_is_refused_before_it_is_looked_at() -> None:
    receipt, _ = made()
    with pytest.raises(CorruptLogError, match="too long"):
        Receipt.decode(" " * (RECEIPT_SIZE_MAX + 1))
    document = json.loads(receipt.encoded())
    for change in (
        {"in_tree": [document["in_tree"][0]] * 66},
        {"version": 2},
        {"place": 1.5},
        {"stretch": ["orders", 3, 5, 5, document["in_tree"][0]]},
        {"stretch": [{}, 3, 5, 6, document["in_tree"][0]]},
        {"since": [1]},
        {"record": 7},
        {"checkpoint": None},
    ):
        with pytest.raises(CorruptLogError, match="cannot be read"):
            Receipt.decode(json.dumps({**document, **change}))
    with pytest.raises(CorruptLogError):
        Receipt.decode("[" * 100_000)
    for body in (b"", b"{}", b"[]", b'{"version":1}', b"\xff", b"[" * 100_000):
        with pytest.raises(CorruptLogError):
            ReceiptCheckpoint.decode(body)
    with pytest.raises(CorruptLogError, match="too long"):
        receipt._replace(note="x" * 100_000).verified(KEYS)


def test_trees_are_the_same_by_their_peaks() -> None:
    one, other = Peaks(), Peaks()
    for number in range(5):
        one.append(leaf_hash(bytes([number])))
        other.append(leaf_hash(bytes([number])))
    copy = one.copy()
    other.append(leaf_hash(b"more"))

    assert one == copy
    assert one != other
    assert one != one.root()
