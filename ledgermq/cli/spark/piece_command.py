"""``ledgermq piece``: a log sealed into pieces, which are backup, cold tier and table at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, add_size_options, takes
from ledgermq.cli.messages.receipt_command import add_key_option, add_since_option
from ledgermq.wire.query_frame import MESSAGES_DEFAULT

PLACE = "a folder, or s3://BUCKET/PREFIX, gs://…, abfss://…"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``piece`` and its verbs."""
    parser = subparsers.add_parser(
        "piece",
        help="seal a log into pieces, and read them",
        description="A piece is a Parquet file that has a stretch of the log, byte for byte.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    seal = verbs.add_parser(
        "seal",
        help="seal what is committed and not sealed yet",
        description="Goes on where the last run ended, however that was. The store is only read.",
    )
    takes(seal, "directory", "storePathRootDir", type=Path)
    takes(seal, "--to PLACE", PLACE, required=True)
    takes(
        seal,
        "--runtime-dir DIR",
        "listen.runtime_dir of the running node; without it the node stands still",
    )
    takes(seal, "--self-id SELF_ID", "whose DLedger log, where there are several")
    add_size_options(seal)
    seal.set_defaults(func=LateCommand("spark.pieces", "seal_store"))

    key = verbs.add_parser(
        "key",
        help="make a key that a topic's messages are locked with",
        description="Writes it into the folder that LEDGERMQ_PIECE_KEYS names, for whoever seals "
        "and whoever reads. Messages of the topic that are sealed from then on are read with it "
        "alone: once the file is deleted everywhere, they are gone.",
    )
    takes(key, "topic TOPIC")
    key.set_defaults(func=LateCommand("spark.pieces", "make_topic_key"))

    list_ = verbs.add_parser("list", help="list the pieces, or the queues in them")
    takes(list_, "place PLACE", PLACE)
    takes(list_, "--queues", "first and last offset of each queue instead")
    list_.set_defaults(func=LateCommand("spark.pieces", "list_pieces"))

    verify = verbs.add_parser(
        "verify",
        help="read all pieces, and compare every record",
        description="Names the piece and the part of it that is not what was sealed. With --key"
        " messages of topics with receipts are compared with what was signed, too.",
    )
    takes(verify, "place PLACE", PLACE)
    add_key_option(verify, is_needed=False)
    add_since_option(verify)
    verify.set_defaults(func=LateCommand("spark.pieces", "verify_pieces"))

    mend = verbs.add_parser(
        "manifest",
        help="make the manifest anew of the pieces",
        description="For a manifest that is lost or damaged.",
    )
    takes(mend, "place PLACE", PLACE)
    mend.set_defaults(func=LateCommand("spark.pieces", "make_manifest"))

    read = verbs.add_parser(
        "read",
        help="print messages of a queue",
        description="From an offset on, or from a time on, or those that have a key.",
        epilog="examples:\n"
        "  ledgermq piece read orders 3 1200 --from s3://archive/orders-a --count 10\n"
        "  ledgermq piece read orders 3 --since 2026-11-29T14:05 --from /srv/pieces\n"
        "  ledgermq piece read orders --key 4711 --from /srv/pieces",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(read, "topic TOPIC")
    takes(read, "queue QUEUE", nargs="?")
    takes(read, "offset OFFSET", nargs="?")
    takes(read, "--from PLACE", PLACE, dest="place", required=True)
    takes(read, "--since TIME", "stored then or later; without OFFSET")
    takes(read, "--key KEY", "with this key, or this id of their client's")
    takes(
        read,
        "--count N",
        f"at most N messages (default: {MESSAGES_DEFAULT})",
        default=MESSAGES_DEFAULT,
    )
    read.set_defaults(func=LateCommand("spark.pieces", "read_messages"))
    for verb in (seal, key, list_, verify, mend, read, _add_prune(verbs), _add_delete(verbs)):
        takes(verb, "--json", "print JSON")


def _add_prune(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    prune = verbs.add_parser(
        "prune",
        help="drop what is older than its topic is kept, and what keys have no more",
        description="A topic is kept as long as topic create or alter --keep and --keep-bytes have"
        " said by the last entry that is sealed, else as long as --keep says; without either for"
        " ever. Only what is wholly beyond that in a piece goes, and nothing of the last piece. Of"
        " topics with --compact the newest message of each key of a queue stays.",
        epilog="examples:\n"
        "  ledgermq piece prune s3://archive/orders-a --dry-run\n"
        "  ledgermq piece prune /srv/pieces --keep 'audit.*=10y' --keep '*=90d'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(prune, "place PLACE", PLACE)
    takes(
        prune,
        "--keep TOPIC=AGE",
        "for a topic that says nothing itself, or for names that begin so: 'audit.*=2y'",
        action="append",
        default=[],
    )
    takes(
        prune,
        "--tombstones AGE",
        "so old gets a message without a body, which ends its key (default: 1d)",
        default="1d",
    )
    takes(prune, "--dry-run", "tell what would go, and change nothing")
    prune.set_defaults(func=LateCommand("spark.piece_ages", "prune_pieces"))
    return prune


def _add_delete(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    delete = verbs.add_parser(
        "delete",
        help="have one message, or all with a key, in no piece any more",
        description="Pieces are written anew without them, and a note says what went of which"
        " piece, with digests before and after; verify compares it. The log of a node goes by its"
        " own age. Exit status 1: some are in pieces that stay as they are until more is sealed.",
        epilog="examples:\n"
        "  ledgermq piece delete orders 3 1200 --from s3://archive/orders-a --reason 'case 17'\n"
        "  ledgermq piece delete orders --key 4711 --from /srv/pieces --dry-run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes(delete, "topic TOPIC")
    takes(delete, "queue QUEUE", nargs="?")
    takes(delete, "offset OFFSET", nargs="?")
    takes(delete, "--from PLACE", PLACE, dest="place", required=True)
    takes(delete, "--key KEY", "with this key, or this id of their client's")
    takes(
        delete,
        "--with-batch",
        "where it is in one record with others, as a batch of RocketMQ 5: all of these go",
    )
    takes(delete, "--reason TEXT", "for the note", default="")
    takes(delete, "--dry-run", "tell how many would go, and change nothing")
    takes(delete, "--yes", "do not ask")
    delete.set_defaults(func=LateCommand("spark.piece_deletion", "delete_messages"))
    return delete
