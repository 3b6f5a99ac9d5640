"""``ledgermq receipt key`` and ``countersign``: keys that sign, of a broker set and of a mirror."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import NAME
from ledgermq.cli.messages.receipt_command import head_in, keys_of
from ledgermq.cli.output import tell, time_text
from ledgermq.client.reading.countersigning import look_through
from ledgermq.client.reading.queries import Queries
from ledgermq.client.reading.receipts import NodeQueues
from ledgermq.model.errors import ConfigError
from ledgermq.sessions.keys.receipt_key import make_signer, read_signer
from ledgermq.store.files.small_file import replace_file


def make_key(arguments: argparse.Namespace) -> int:
    """Write a new secret key, and print the public one."""
    public = make_signer(arguments.to, arguments.name).as_text()
    text = f"{public}\nreceipts.key_file = {str(arguments.to)!r}, the same on all members"
    return tell(arguments, {"public": public, "file": str(arguments.to)}, text)


def countersign(arguments: argparse.Namespace) -> int:
    """Sign the newest checkpoint of a mirror, once all since the last one was found to hold."""
    keys, signer = keys_of(arguments), read_signer(arguments.signer)
    if signer.key.name in {key.name for key in keys}:
        raise ConfigError(
            "the key to sign with is the broker set's: make one of another name",
            name=signer.key.name,
        )
    if arguments.first and arguments.kept.exists():
        raise ConfigError("--first, and something was signed already", file=str(arguments.kept))
    since = None if arguments.first else head_in(arguments.kept, keys, option="FILE")
    with Queries(arguments.address, name=NAME, timeout_s=arguments.timeout) as queries:
        seen = look_through(NodeQueues(queries), keys, since=since)
    head = seen.head
    replace_file(arguments.kept, signer.countersigned(head.note).encode())
    lacking = f"; {seen.lacking:,} stretches lack messages, and were not" if seen.lacking else ""
    text = (
        f"signed: a tree of {head.size:,} stretches of {time_text(head.at_ms)};"
        f" {seen.messages:,} messages were compared{lacking}"
    )
    document = {**seen._asdict(), "head": head.note, "size": head.size, "key": signer.key.as_text()}
    return tell(arguments, document, text)
