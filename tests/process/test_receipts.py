"""Receipts of real nodes: made by whoever leads, proven by a public key alone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.spark.pieces import PieceQueues
from ledgermq.client import Admin, NoPermissionError, OutgoingMessage, Producer
from ledgermq.client.reading.countersigning import look_through
from ledgermq.client.reading.queries import Queries
from ledgermq.client.reading.receipts import NodeQueues, ReceiptMaker
from ledgermq.doctor.finding import Diagnosis, Weight
from ledgermq.doctor.settings_checks import settings_checks
from ledgermq.doctor.subject import Subject
from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint, SignedHead
from ledgermq.formats.receipts.merkle_tree import Peaks
from ledgermq.formats.receipts.receipt import Receipt
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.formats.records.message import BODY_CRC_AT, CRC_MASK, HEAD_SIZE, WORD
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, MessageUnknownError
from ledgermq.model.exit_status import EXIT_STORAGE
from ledgermq.model.limits import RECEIPTS_TOPIC
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.sessions.keys.receipt_key import make_signer, read_signer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Member, make_group
from tests.process.mirror_site import Source
from tests.process.test_retention import set_retention
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

QUEUES = 4
WRITTEN = 1_600
BEHIND_MAX_S = 1
KEPT = "11MiB"
"""Of the 16 MiB that ``write`` has written."""


def start(node: Node, **tables: Any) -> NoteKey:
    """A node with receipts of ``TOPIC``; its public key."""
    key = make_signer(node.folder / "receipts.key", "orders-a")
    start_client_node(node, receipts={"key_file": str(node.folder / "receipts.key")}, **tables)
    want(f"ipc://{node.runtime}")
    return key


def write(node: Node, topic: str) -> None:
    """Have 16 MiB in the log that no compression makes less of."""
    chance = random.Random(50)
    with Producer(node.address) as producer:
        for _ in range(WRITTEN // 20):
            batch = [OutgoingMessage(chance.randbytes(10_000)) for _ in range(20)]
            producer.send_batch(topic, batch, queue_id=0).result(PATIENCE_S)


def want(address: str) -> None:
    with Admin(address, timeout_s=PATIENCE_S) as admin:
        assert admin.alter_topic(TOPIC, receipts=True).receipts


def send(address: str, count: int, *, begin: int = 0) -> dict[tuple[int, int], bytes]:
    """Send messages; their bodies by queue and offset."""
    with Producer(address) as producer:
        sent = {
            number: producer.send(TOPIC, b"body %d" % number, queue_id=number % QUEUES)
            for number in range(begin, begin + count)
        }
        return {
            (number % QUEUES, one.result(PATIENCE_S).queue_offset): b"body %d" % number
            for number, one in sent.items()
        }


def receipt_of(queries: Queries, queue: int, offset: int, *, since: int = 0) -> Receipt:
    """The receipt of a message, as soon as a checkpoint has it."""

    def made() -> Receipt | None:
        try:
            return ReceiptMaker(NodeQueues(queries)).make(TOPIC, queue, offset, since_size=since)
        except MessageUnknownError:
            return None

    found: Receipt = wait_until(made, "a checkpoint")
    return found


def checkpoints(queries: Queries) -> list[ReceiptCheckpoint]:
    return [
        ReceiptCheckpoint.decode(one.body) for one in NodeQueues(queries).read(RECEIPTS_TOPIC, 0, 0)
    ]


def check_chain(
    found: list[ReceiptCheckpoint], key: NoteKey, sent: dict[tuple[int, int], bytes]
) -> None:
    """Each checkpoint goes on from the one before, and all that was sent is in them once."""
    tree, ends = Peaks(), dict[int, int]()
    for one in found:
        assert (one.before.size, one.before.hashes) == (tree.size, tree.hashes)
        assert one.head([key]).size == one.tree().size
        for stretch in one.stretches:
            assert stretch.topic == TOPIC
            assert stretch.first == ends.get(stretch.queue_id, 0)
            ends[stretch.queue_id] = stretch.end
        tree = one.after()
    assert ends == {
        queue: max(offset for other, offset in sent if other == queue) + 1 for queue, _ in sent
    }


@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_each_message_of_a_topic_with_receipts_is_proven_and_no_other(
    make_node: Callable[[], Node], log: str
) -> None:
    node = make_node()
    key = start(node, log=log)
    sent = send(node.address, 400)
    with Producer(node.address) as producer:
        other = producer.send("other", b"none", queue_id=0).result(PATIENCE_S)
    with Queries(node.address) as queries:
        for (queue, offset), body in random.Random(7).sample(sorted(sent.items()), 20):
            proven = receipt_of(queries, queue, offset).verified([key])
            message = proven.message
            assert (message.queue_id, message.queue_offset) == (queue, offset)
            assert bytes(message.body) == body
        with pytest.raises(MessageUnknownError, match="no such message"):
            ReceiptMaker(NodeQueues(queries)).make(TOPIC, 0, 100_000)
        # One more checkpoint than the other topic's message.
        last = send(node.address, 1, begin=400)
        receipt_of(queries, *next(iter(last)))
        with pytest.raises(MessageUnknownError, match="its topic had none"):
            ReceiptMaker(NodeQueues(queries)).make("other", 0, other.queue_offset)
        check_chain(checkpoints(queries), key, {**sent, **last})


def test_hashing_has_what_processors_leave_over_until_it_is_late(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    path = node.folder / "receipts.key"
    key = make_signer(path, "orders-a")
    start_client_node(node, receipts={"key_file": str(path), "behind_max_s": BEHIND_MAX_S})
    want(f"ipc://{node.runtime}")

    def counted(name: str) -> int:
        return int(node.status()["counters"]["receipts"][name])

    with Producer(node.address) as producer:
        producer.send(TOPIC, b"first", queue_id=1).result(PATIENCE_S)
    wait_until(lambda: counted("messages") == 1, "the first checkpoint")
    assert counted("hurried") == 0
    pid = node.pid("receipts")
    policies = {
        int(one.name): os.sched_getscheduler(int(one.name))
        for one in Path(f"/proc/{pid}/task").iterdir()
    }
    # What hashes, and not who answers the broker.
    assert policies.pop(pid) == os.SCHED_OTHER
    assert os.SCHED_IDLE in policies.values()
    # More than two checkpoints have, which it gets to when it has waited.
    os.kill(pid, signal.SIGSTOP)
    for _ in range(3):
        write(node, TOPIC)
    sent = 1 + 3 * WRITTEN
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > BEHIND_MAX_S, "messages to be late")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: counted("messages") == sent, "all checkpoints")
    assert counted("hurried") > 0
    assert node.logged("receipts are late")
    assert counted("failed") == 0
    with Queries(node.address) as queries:
        for place in ((1, 0), (0, 0), (0, sent - 2)):
            receipt_of(queries, *place).verified([key])


def test_pieces_prove_by_the_key_that_nobody_has_changed_a_message(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    key = start(node)
    sent = send(node.address, 200)
    with Queries(node.address) as queries:
        for place in list(sent)[-QUEUES:]:
            receipt_of(queries, *place)
    place, kept = tmp_path / "pieces", tmp_path / "kept"
    run = ["--address", node.address]
    capsys.readouterr()
    assert main(["receipt", "checkpoint", "--key", key.as_text(), *run]) == 0
    kept.write_text(capsys.readouterr().out)
    last = send(node.address, QUEUES, begin=200)
    with Queries(node.address) as queries:
        for one in last:
            receipt_of(queries, *one)
    seal = ["piece", "seal", str(node.root), "--to", str(place)]
    assert main([*seal, "--runtime-dir", str(node.runtime)]) == 0
    words = ["piece", "verify", str(place), "--key", key.as_text()]
    capsys.readouterr()
    assert main([*words, "--since", str(kept), "--json"]) == 0
    proven = json.loads(capsys.readouterr().out)["receipts"]
    assert (proven["messages"], proven["lacking"]) == (200 + QUEUES, 0)
    # A receipt out of pieces is the node's, and goes on from what was kept.
    queue, offset = next(iter(last))
    get = ["receipt", "get", TOPIC, str(queue), str(offset), "--key", key.as_text()]
    assert main([*get, "--since", str(kept), "--from", str(place)]) == 0
    receipt = tmp_path / "receipt"
    receipt.write_text(capsys.readouterr().out)
    check = ["receipt", "verify", str(receipt), "--key", key.as_text(), "--since", str(kept)]
    assert main([*check, "--body", str(tmp_path / "body")]) == 0
    assert (tmp_path / "body").read_bytes() == last[queue, offset]
    other = make_signer(tmp_path / "other.key", "orders-a")
    assert main(["receipt", "verify", str(receipt), "--key", other.as_text()]) == EXIT_STORAGE
    assert "signed by none of the keys" in capsys.readouterr().err
    assert main(["piece", "verify", str(place), "--key", other.as_text()]) == EXIT_STORAGE


def test_messages_that_were_changed_with_all_sums_are_found_by_the_key_alone(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    key = start(node, log="commitlog")
    sent = send(node.address, 40)
    with Queries(node.address) as queries:
        for place in sent:
            receipt_of(queries, *place)
    node.stop()
    (log,) = (node.root / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    at = content.index(b"body 17") - HEAD_SIZE
    forged = b"BODY 17"
    content[at + HEAD_SIZE : at + HEAD_SIZE + len(forged)] = forged
    WORD.pack_into(content, at + BODY_CRC_AT, crc32(forged) & CRC_MASK)
    log.write_bytes(content)
    pieces = tmp_path / "pieces"
    assert main(["piece", "seal", str(node.root), "--to", str(pieces)]) == 0
    assert main(["piece", "verify", str(pieces)]) == 0
    assert main(["piece", "verify", str(pieces), "--key", key.as_text()]) == EXIT_STORAGE
    assert "not those that were signed" in capsys.readouterr().err
    with pytest.raises(CorruptLogError, match="not those that were signed"):
        look_through(PieceQueues(str(pieces)), [key], since=None)


class SigningSource(Source):
    """A group that has mirrors, and receipts by the key in ``receipts.key``."""

    def __init__(self, make_node: Callable[[], Node], folder: Path) -> None:
        self.key = make_signer(folder / "receipts.key", "orders-a")
        self._file = folder / "receipts.key"
        super().__init__(make_node, folder, members=1)

    def let_answer(self, member: Member) -> None:
        super().let_answer(member)
        with member.node.config.open("a") as file:
            file.write(f'[receipts]\nkey_file = "{self._file}"\n')


def test_a_mirror_signs_what_it_has_and_no_other_history(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SigningSource(make_node, tmp_path)
    address, public = source.group.addresses[0], source.key.as_text()
    own = make_signer(tmp_path / "site-b.key", "site-b").as_text()
    kept = tmp_path / "known.checkpoint"

    def copied(begin: int) -> tuple[int, int]:
        """Where the last of forty messages more is, once the mirror has its checkpoint."""
        sent = send(address, 40, begin=begin)
        with Queries(address) as queries:
            for place in list(sent)[-QUEUES:]:
                receipt_of(queries, *place)
        source.wait_copied(mirror)
        return list(sent)[-1]

    def run(*words: object, status: int = 0) -> str:
        capsys.readouterr()
        found = main(["receipt", *map(str, words), "--key", public])
        printed = capsys.readouterr()
        assert found == status, printed.out + printed.err
        return printed.out + printed.err

    def signed(*words: object, of: str, status: int = 0) -> str:
        with_key = ["--with", tmp_path / "site-b.key", "--address", of]
        return run("countersign", kept, *with_key, *words, status=status)

    want(address)
    mirror = source.mirror(make_node())
    first = copied(0)
    assert "no such file" in signed(of=mirror.address, status=1)
    assert "40 messages were compared" in signed("--first", of=mirror.address)
    receipt = tmp_path / "receipt"
    get = ["get", TOPIC, *first, "--by", kept, "--address", mirror.address]
    receipt.write_text(run(*get))
    assert f"and by {own}" in run("verify", receipt, "--also", own)
    # The source's word alone is not enough for who wants the mirror's.
    receipt.write_text(run("get", TOPIC, *first, "--address", address))
    assert "signed by none of the keys" in run("verify", receipt, "--also", own, status=2)
    run("verify", receipt)
    second = copied(40)
    assert "does not have it yet" in run(
        "get", TOPIC, *second, "--by", kept, "--address", address, status=1
    )
    assert "40 messages were compared" in signed(of=mirror.address)
    receipt.write_text(run("get", TOPIC, *second, "--by", kept, "--address", address))
    run("verify", receipt, "--also", own, "--since", kept)
    # The same secret key signs another history.
    other = make_node()
    start_client_node(other, receipts={"key_file": str(tmp_path / "receipts.key")})
    want(f"ipc://{other.runtime}")
    size = SignedHead.read(kept.read_text(), [source.key]).size
    before, number = kept.read_bytes(), 0
    with Queries(other.address) as queries:
        while number == 0 or ReceiptMaker(NodeQueues(queries)).newest().tree().size < size:
            for place in send(other.address, QUEUES, begin=number):
                receipt_of(queries, *place)
            number += QUEUES
    told = signed(of=other.address, status=2)
    assert "another tree of that size" in told or "do not go on" in told
    assert kept.read_bytes() == before
    source.group.stop()


@pytest.mark.long
def test_the_last_checkpoint_does_not_hold_the_log_and_is_never_lost_with_it(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    key = start(node, file_size=262_144)
    first = send(node.address, 20)
    with Queries(node.address) as queries:
        for place in first:
            receipt_of(queries, *place)
        before = ReceiptMaker(NodeQueues(queries)).newest()
        write(node, "other")
        member = Member(node, "n7")
        set_retention(member, bytes_max=KEPT)
        with CursorPage.attach(node.runtime / "cursors") as page:
            wait_until(lambda: page.read_log_begin().position > before.end, "the log to go")
        renewed = ReceiptMaker(NodeQueues(queries)).newest()
        assert renewed.head([key]).root == before.head([key]).root
        assert renewed.end > before.end
        last = send(node.address, QUEUES, begin=20)
        held = before.head([key])
        for place in last:
            receipt = receipt_of(queries, *place)
            # Stretches up to the one that was held are gone from the log, and not needed.
            assert receipt.verified([key]).head.size > held.size


def test_whoever_leads_goes_on_with_the_tree_and_nothing_is_signed_twice(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    key = make_signer(tmp_path / "receipts.key", "orders-a")

    def prepare(member: Member) -> None:
        with member.node.config.open("a") as file:
            file.write(f'[receipts]\nkey_file = "{tmp_path / "receipts.key"}"\n')

    group = make_group(make_node, ack="majority-fsync", prepare=prepare)
    addresses = ",".join(group.addresses)
    want(group.leader().address)
    sent = send(addresses, 100)
    chance = random.Random(50)
    for turn in range(1, 4):
        leader = group.leader()
        if turn == 2:
            # Its process of receipts alone: the next one goes on.
            os.kill(leader.node.pid("receipts"), signal.SIGKILL)
        else:
            leader.kill()
            leader.start()
        sent |= send(addresses, 100, begin=100 * turn)
    with Queries(addresses) as queries:
        for place in sorted(sent)[-1:] + chance.sample(sorted(sent), 10):
            proven = receipt_of(queries, *place).verified([key])
            assert bytes(proven.message.body) == sent[place]
        for queue in range(QUEUES):
            receipt_of(queries, *max(place for place in sent if place[0] == queue))
        check_chain(checkpoints(queries), key, sent)
    group.stop()


def test_nobody_else_writes_to_the_topic_of_receipts(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node = make_node()
    start(node)
    receipt_of_first = send(node.address, 1)
    with Queries(node.address) as queries:
        receipt_of(queries, *next(iter(receipt_of_first)))
    with Producer(node.address) as producer, pytest.raises(LedgerError):
        producer.send(RECEIPTS_TOPIC, b"forged").result(PATIENCE_S)
    with Admin(node.address, timeout_s=PATIENCE_S) as admin:
        with pytest.raises(NoPermissionError):
            admin.delete_topic(RECEIPTS_TOPIC)
        with pytest.raises(NoPermissionError):
            admin.alter_topic(RECEIPTS_TOPIC, queues=2)


def test_a_key_that_others_can_read_is_refused_and_the_doctor_tells_the_public_one(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    path = node.folder / "receipts.key"
    assert main(["receipt", "key", "orders-a", "--to", str(path)]) == 0
    public = NoteKey.read(capsys.readouterr().out.splitlines()[0])
    assert main(["receipt", "key", "orders-a", "--to", str(path)]) != 0
    assert "not overwritten" in capsys.readouterr().err
    node.configure(receipts={"key_file": str(path)})
    subject = Subject(load_settings(node.config), None, None)

    def found() -> Diagnosis:
        return next(one for one in settings_checks(subject) if one.check == "settings.receipts")

    assert (found().verdict, public.as_text() in found().measured) == (Weight.OK, True)
    path.chmod(0o640)
    assert found().verdict is Weight.FAIL
    with pytest.raises(ConfigError, match="others can read"):
        read_signer(path)
    path.chmod(0o600)
    path.write_text("PRIVATE+KEY+orders-a+00000000+AAAA\n")
    with pytest.raises(ConfigError, match="not a key of receipts") as raised:
        read_signer(path)
    assert "AAAA" not in str(raised.value)
