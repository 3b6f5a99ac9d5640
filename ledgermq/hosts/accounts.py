"""Names of accounts and groups of this machine, and how somebody joins a group."""

from __future__ import annotations

import os
from contextlib import suppress

with suppress(ImportError):
    # Not where there are no such accounts; nobody asks for one there.
    import grp
    import pwd


def account_name(number: int) -> str:
    """The account's name; its number, where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str | None:
    """The group's name; None where it has none."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return None


def way_into(group: str) -> str:
    """What lets this process's account do what members of ``group`` may, as a command."""
    return f"sudo usermod -aG {group} {account_name(os.geteuid())}"
