"""``ledgermq receipt``: proofs that messages were stored, and their check by a public key alone.

Exit status of ``verify``: 0 proven; 2 not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ledgermq.cli.arguments import NAME, LateCommand, add_node_options, takes
from ledgermq.cli.message_text import preview
from ledgermq.cli.output import tell, time_text
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.queries import Queries
from ledgermq.client.reading.receipts import NodeQueues, QueueSource, ReceiptMaker
from ledgermq.client.reading.received_json import received_as_json
from ledgermq.formats.receipts.checkpoint import SignedHead, text_of
from ledgermq.formats.receipts.receipt import RECEIPT_SIZE_MAX, Receipt, note_of
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, refused_as

PLACE = "read pieces in place of a node: a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``receipt`` and its verbs."""
    parser = subparsers.add_parser(
        "receipt",
        help="prove that messages were stored, and check such proofs",
        description="Topics have receipts from topic alter --receipts on, where receipts.key_file"
        " is set on all nodes.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    key = verbs.add_parser(
        "key",
        help="make the key that a broker set signs with",
        description="Writes the secret key to FILE, for receipts.key_file of all members, and"
        " prints the public one, which is for everybody.",
    )
    takes(key, "name NAME", "of the log, as receipts tell it: orders-a")
    takes(key, "--to FILE", "has to be new", required=True)
    key.set_defaults(func=LateCommand("setup.receipt_keys", "make_key"))

    get = verbs.add_parser(
        "get",
        help="get the receipt of a message",
        description="Prints it. A checkpoint has a message about a second after it was stored.",
        epilog="examples:\n"
        "  ledgermq receipt get orders 3 1200 > 1200.receipt\n"
        "  ledgermq receipt get orders 3 1200 --since known.checkpoint --key orders-a.pub\n"
        "  ledgermq receipt get orders 3 1200 --from s3://archive/orders-a\n"
        "  ledgermq receipt get orders 3 1200 --by countersigned --key orders-a.pub",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(get, "topic TOPIC")
    takes(get, "queue QUEUE")
    takes(get, "offset OFFSET")
    takes(
        get,
        "--by FILE",
        "a checkpoint that is to prove it, with all its signatures: one that is countersigned",
    )
    get.set_defaults(func=_get)

    checkpoint = verbs.add_parser(
        "checkpoint",
        help="print the newest checkpoint",
        description="Who keeps it sees later whether the log still goes on from it: --since.",
    )
    checkpoint.set_defaults(func=_checkpoint)
    countersign = _add_countersign(verbs)
    for verb in (get, checkpoint, countersign):
        add_node_options(verb)
    for verb in (get, checkpoint):
        takes(verb, "--from PLACE", PLACE, dest="place")

    verify = verbs.add_parser(
        "verify",
        help="check a receipt, with a public key and nothing else",
        description="Tells which message it proves, and by which checkpoint.",
        epilog="examples:\n"
        "  ledgermq receipt verify 1200.receipt --key orders-a.pub\n"
        "  ledgermq receipt verify 1200.receipt --key 'orders-a+0a1b…' --body 1200.body",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(verify, "receipt FILE")
    takes(verify, "--body FILE", "write the message's body there")
    takes(
        verify,
        "--also KEY",
        "public key, or a file that has it, whose owner has to have signed, too: a mirror's",
        action="append",
        default=[],
    )
    takes(verify, "--json", "print JSON")
    verify.set_defaults(func=_verify)
    for verb, is_needed in ((get, False), (checkpoint, False), (verify, True)):
        add_key_option(verb, is_needed=is_needed)
    for verb in (get, verify):
        add_since_option(verb)
    takes(key, "--json", "print JSON")


def _add_countersign(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    countersign = verbs.add_parser(
        "countersign",
        help="sign what a mirror has found to be signed, too",
        description="Goes through the checkpoints of a mirror, behind the one that FILE has, and "
        "compares its messages with them. Then FILE has the newest one, with the signature of the "
        "mirror's own key beside the broker set's. Have a timer run it.",
        epilog="examples:\n"
        "  ledgermq receipt countersign kept --with site-b.key --key orders-a.pub --first\n"
        "  ledgermq receipt countersign kept --with site-b.key --key orders-a.pub",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(countersign, "kept FILE", "the last one that it signed")
    takes(
        countersign,
        "--with FILE",
        "the mirror's secret key, of a name of its own: receipt key site-b --to FILE",
        dest="signer",
        required=True,
    )
    takes(countersign, "--first", "begin: there is no such file yet")
    countersign.set_defaults(func=LateCommand("setup.receipt_keys", "countersign"))
    add_key_option(countersign, is_needed=True)
    return countersign


def add_key_option(parser: argparse.ArgumentParser, *, is_needed: bool) -> None:
    """Add ``--key``, which ``keys_of`` reads."""
    takes(
        parser,
        "--key KEY",
        "public key, or a file that has it; several after a change of keys",
        action="append",
        default=[],
        required=is_needed,
    )


def add_since_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--since``, which ``kept_checkpoint`` reads."""
    takes(
        parser,
        "--since FILE",
        "a checkpoint, or a receipt, that was kept: what is checked has to go on from it",
    )


def kept_checkpoint(arguments: argparse.Namespace, keys: Sequence[NoteKey]) -> SignedHead | None:
    """The checkpoint of ``--since``; None without the option.

    Raises:
        ConfigError: there is no key to compare it by.
        CorruptLogError: none of ``keys`` has signed it.
    """
    if arguments.since is None:
        return None
    return head_in(arguments.since, keys, option="--since")


def head_in(path: Path, keys: Sequence[NoteKey], *, option: str) -> SignedHead:
    """The checkpoint in the file of an option.

    Raises:
        ConfigError: there is no key to compare it by, or no such file.
        CorruptLogError: none of ``keys`` has signed it.
    """
    if not keys:
        raise ConfigError(f"{option} needs --key: what was kept is compared by its signature")
    return SignedHead.read(note_of(_content(path, "checkpoint")), keys)


def keys_of(arguments: argparse.Namespace) -> list[NoteKey]:
    """The public keys of ``--key``.

    Raises:
        ConfigError: one is none.
    """
    return _read_keys(arguments.key)


def _read_keys(texts: Sequence[str]) -> list[NoteKey]:
    return [
        NoteKey.read(text if "+" in text else _content(Path(text), "public key")) for text in texts
    ]


def _get(arguments: argparse.Namespace) -> int:
    if arguments.place is not None:
        return LateCommand("spark.pieces", "get_receipt_there")(arguments)
    with Queries(arguments.address, name=NAME, timeout_s=arguments.timeout) as queries:
        return get_receipt(NodeQueues(queries), arguments)


def _checkpoint(arguments: argparse.Namespace) -> int:
    if arguments.place is not None:
        return LateCommand("spark.pieces", "print_checkpoint_there")(arguments)
    with Queries(arguments.address, name=NAME, timeout_s=arguments.timeout) as queries:
        return print_checkpoint(NodeQueues(queries), arguments)


def get_receipt(source: QueueSource, arguments: argparse.Namespace) -> int:
    """Print the receipt of a message out of what ``source`` gives."""
    keys = keys_of(arguments)
    since = kept_checkpoint(arguments, keys)
    by = None if arguments.by is None else head_in(arguments.by, keys, option="--by")
    receipt = ReceiptMaker(source).make(
        arguments.topic,
        arguments.queue,
        arguments.offset,
        since_size=0 if since is None else since.size,
        by=by,
    )
    if keys:
        receipt.verified(keys, since=since)
    sys.stdout.write(receipt.encoded())
    return 0


def print_checkpoint(source: QueueSource, arguments: argparse.Namespace) -> int:
    """Print the newest checkpoint of what ``source`` gives."""
    checkpoint = ReceiptMaker(source).newest()
    keys = keys_of(arguments)
    if keys:
        checkpoint.head(keys)
    if not arguments.json:
        sys.stdout.write(checkpoint.note)
        return 0
    return tell(arguments, {"checkpoint": checkpoint.note, "end": checkpoint.end}, "")


def _verify(arguments: argparse.Namespace) -> int:
    receipt = Receipt.decode(_content(arguments.receipt, "receipt"))
    keys = keys_of(arguments)
    since = kept_checkpoint(arguments, keys)
    also = _read_keys(arguments.also)
    proven = receipt.verified(keys, since=since, also=also)
    head, message = proven.head, ReceivedMessage.of_record(memoryview(receipt.record))
    if arguments.body is not None:
        _write(arguments.body, message.body)
    document = {
        "message": received_as_json(message),
        "key": head.key.as_text(),
        "time": head.at_ms,
        "position": head.position,
        "size": head.size,
        "root": text_of(head.root),
        "since": None if since is None else since.size,
        "also": [key.as_text() for key in also],
    }

    def print_proven() -> None:
        print(
            f"proven: {proven.message.topic} {message.queue_id} {message.queue_offset}"
            f"  stored {time_text(message.store_timestamp)}  {preview(message)}"
        )
        kept = ", and it goes on from the checkpoint that was kept" if since else ""
        print(
            f"by {head.key.as_text()}, which signed a tree of {head.size:,} stretches at"
            f" {time_text(head.at_ms)}{kept}"
        )
        for key in also:
            print(f"and by {key.as_text()}")

    return tell(arguments, document, print_proven)


def _content(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(RECEIPT_SIZE_MAX + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"no {what}: there is no such file", file=str(path)) from error
    except OSError as error:
        raise StorageError.of(f"{what} not read", error, file=path) from error
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"{what} is no text", file=str(path)) from error


def _write(path: Path, content: bytes) -> None:
    with refused_as("body not written", file=path):
        path.write_bytes(content)
