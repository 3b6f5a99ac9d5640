"""``ledgermq upgrade check``: which member may get another version next, or the old one back.

Exit status: 0 it may; 1 it may not, for the reasons that are printed, or the settings or the
command line are wrong; 2 no node is running.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from ledgermq.cli.arguments import takes
from ledgermq.cli.output import tell
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, NotLeaderError
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_OK
from ledgermq.model.features import LEVEL_OF_BODILESS, level_of, version_of
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.raft.quorum import majority
from ledgermq.rules.state import feature_table
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.store_paths import StorePaths

CONFIG = Path("/etc/ledgermq/ledgermq.toml")
SILENT_MAX_MS = 3_000
"""Who has said nothing for longer is away."""


class Outlook(NamedTuple):
    """What becomes of the group while one member is away.

    Attributes:
        reason: why it should not be now; empty: it may be next.
    """

    member: str
    role: str
    reason: str


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``upgrade check``."""
    parser = subparsers.add_parser("upgrade", help="say which node may get another version next")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="which member may be restarted next, or whether this node may be set back",
        description="Asked of the leader, it says of each member whether the others go on without "
        "it. With --to it says of this node's store, running or not, whether that version knows "
        "the feature level that is in force.",
    )
    takes(check, "--to VERSION", "the version to be set back to, as 0.1.0")
    takes(check, "--config FILE", "settings (default: %(default)s)", default=CONFIG)
    takes(check, "--json", "print JSON")
    check.set_defaults(func=_check)


def _check(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments.config)
    if arguments.to is not None:
        return _check_version(arguments, settings, arguments.to)
    path = RuntimePaths(settings.listen.runtime_dir).raft_control
    found = outlooks(control.ask(path, "status", timeout_s=control.ANSWER_TIMEOUT_S))
    lines = [f"{one.member:<6}{one.role:<10}{one.reason or 'may be next'}" for one in found]
    tell(arguments, {"members": [one._asdict() for one in found]}, "\n".join(lines))
    return EXIT_CONFIG if all(one.reason for one in found) else EXIT_OK


def _check_version(arguments: argparse.Namespace, settings: Settings, version: str) -> int:
    """Whether ``version`` may have this store.

    Raises:
        ConfigError: it does not know what is in force, or it is no version.
    """
    try:
        known = level_of(version)
    except ValueError as error:
        raise ConfigError("no version, as 0.2.0", version=version) from error
    if settings.node.witness:
        return _check_witness(arguments, version, known)
    document = ConfigFile(StorePaths.of(settings).own / feature_table.FILE).load()
    in_force = feature_table.level_told(document)
    if in_force > known:
        raise ConfigError(
            f"version {version} cannot have this store: it knows feature level {known}, and level"
            f" {in_force} is in force, which needs {version_of(in_force)} or newer",
            store=str(settings.store.path_root_dir),
        )
    told = {"version": version, "known": known, "in_force": in_force}
    text = f"version {version} knows feature level {known}, level {in_force} is in force: it may be"
    return tell(arguments, told, text)


def _check_witness(arguments: argparse.Namespace, version: str, known: int) -> int:
    """A witness without bodies has no log that says what is in force; so much is for certain.

    Raises:
        ConfigError: ``version`` knows of no such witnesses.
    """
    needed = LEVEL_OF_BODILESS
    if known < needed:
        raise ConfigError(
            f"version {version} cannot be a witness without bodies: it knows feature level {known},"
            f" and they need level {needed}, so {version_of(needed)} or newer"
        )
    told = {"version": version, "known": known, "in_force": None}
    text = (
        f"version {version} knows feature level {known}, and of witnesses without bodies: ask a"
        " member with messages which level is in force"
    )
    return tell(arguments, told, text)


def outlooks(status: Mapping[str, object]) -> list[Outlook]:
    """What ``raft status`` of the leader says of each member, the leader last.

    Raises:
        NotLeaderError: it is not the leader's.
    """
    if status["role"] != "leader":
        raise NotLeaderError(
            "only the leader knows how far each member is: ask there", leader=status["leader"]
        )
    voters = set(cast("Sequence[str]", status["voters"]))
    witnesses = set(cast("Sequence[str]", status["witnesses"]))
    # A node that was not restarted since this command came says nothing of bodies.
    bodiless = set(cast("Sequence[str]", status.get("bodiless", ())))
    refusals = cast("Mapping[str, str]", status["refusals"])
    peers = {
        str(one["node"]): one for one in cast("Sequence[Mapping[str, object]]", status["peers"])
    }
    leader = str(status["node"])
    away = {name: _away(peer, refusals.get(name, "")) for name, peer in peers.items()}
    well = {leader, *(name for name, reason in away.items() if not reason)}
    found = []
    for name in (*sorted(peers), leader):
        role = "leader" if name == leader else "witness" if name in witnesses else "follower"
        if name not in voters:
            role = "learner"
        others = (well & voters) - {name}
        reason = ""
        if name in voters and len(voters) > 1 and len(others) < majority(len(voters)):
            missing = ", ".join(f"{other}: {why}" for other, why in away.items() if why)
            reason = f"without it there is no majority ({missing or 'two voters need one another'})"
        elif bodiless and name in voters and len(others - bodiless) < majority(len(voters)) - 1:
            reason = "without it too few would hold messages for a witness to count beside them"
        elif name == leader and len(voters) > 1 and not _heirs(peers, others - witnesses):
            reason = "no other member could lead now"
        found.append(Outlook(name, role, reason))
    return found


def _away(peer: Mapping[str, object], refusal: str) -> str:
    """Why a member does not count now; empty: it does."""
    if refusal:
        return refusal
    if cast("int", peer["silent_ms"]) > SILENT_MAX_MS:
        return f"not heard of for {peer['silent_ms']} ms"
    if peer["mode"] != "replicate":
        return f"it is behind by {peer['behind']} entries, and not fed steadily yet"
    return ""


def _heirs(peers: Mapping[str, Mapping[str, object]], names: set[str]) -> set[str]:
    return {name for name in names if name in peers and peers[name]["could_lead"]}
