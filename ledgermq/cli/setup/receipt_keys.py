"""``ledgermq receipt key``: the key that a broker set signs receipts with."""

from __future__ import annotations

import argparse

from ledgermq.cli.output import tell
from ledgermq.sessions.keys.receipt_key import make_signer


def make_key(arguments: argparse.Namespace) -> int:
    """Write a new secret key, and print the public one."""
    public = make_signer(arguments.to, arguments.name).as_text()
    text = f"{public}\nreceipts.key_file = {str(arguments.to)!r}, the same on all members"
    return tell(arguments, {"public": public, "file": str(arguments.to)}, text)
