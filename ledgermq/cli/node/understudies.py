"""``ledgermq understudy``: what its verbs do, and what they print."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from ledgermq.cli.output import tell, time_text
from ledgermq.cli.store.migration import leaving_behind, with_address, with_port, write_text
from ledgermq.cli.store.store_upgrade_command import say
from ledgermq.conversion.understudy_note import UnderstudyNote, read_note, write_note
from ledgermq.daemon import supervisor
from ledgermq.daemon.children import ProcessTable, start_order
from ledgermq.daemon.store_lock import holder_of, make_directory, stopped_store
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.broker_conf import write_translation
from ledgermq.model.config.host_texts import split_address
from ledgermq.model.config.settings import LogSection
from ledgermq.model.config.settings_file import read_settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.units import MIB
from ledgermq.process.clock import MachineClock
from ledgermq.process.log_lines import configure
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.origin import Product, UseVerdict, origin_of, refuse_strange
from ledgermq.understudy.followed_settings import (
    has_accounts,
    look_at_master,
    translation_of,
    waits_for_slaves,
)
from ledgermq.understudy.master_access import (
    ACCESS_KEY_OPTION,
    CA_OPTION,
    MasterAccess,
    read_access,
)
from ledgermq.understudy.promotion import (
    answering,
    finish_store,
    mark_promoted,
    refuse_living_master,
)
from ledgermq.understudy.understudy import Understudy
from ledgermq.understudy.understudy_metrics import metrics_text
from ledgermq.understudy.understudy_status import FollowingState, UnderstudyStatus, read_status

_OPEN = (
    "the master let in none but its accounts, and the node lets in whoever reaches it: ledgermq acl"
    " import, then access.enabled"
)
_ACKNOWLEDGED = {
    True: "by the master when it is on this disk, too, while the understudy is connected",
    False: "by the master alone: what was under way when it dies is lost (brokerRole=SYNC_MASTER"
    " waits for a slave, with RocketMQ 5 if inSyncReplicas is 2)",
}
_LOCKS = {"lock", "ledgermq"}
_OF_THE_STORE = (
    "path_root_dir",
    "log",
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "message_index_enable",
    "max_hash_slot_num",
    "max_index_num",
    "message_delay_level",
)
"""Settings of the store by which queues and index are built while it is followed."""
_LOOK_S = 0.02
_ASK_S = 0.1
"""Between two connections to a master that is followed no more, and answers."""
_END_S = 60
"""What is received is synced, and queues and index are."""


def add(arguments: argparse.Namespace) -> int:
    """Prepare a folder; nothing is received yet."""
    root: Path = arguments.folder
    for address in (arguments.master, arguments.remoting):
        split_address(address)
    note = look_at_master(arguments.master, arguments.remoting, _access(arguments))
    make_directory(root, mode=0o750)
    with stopped_store(root):
        names = sorted(path.name for path in root.iterdir())
        found = [name for name in names if name not in _LOCKS and not is_of_others(name)]
        found += [] if read_note(root) is None else ["an understudy"]
        if found:
            raise ConfigError(
                "the folder of an understudy begins empty", directory=str(root), found=found[:20]
            )
        write_note(root, note)
    facts = {
        "folder": str(root),
        "master": note.master,
        "remoting": note.remoting,
        "rocketmq": note.product,
        "log_file_size": note.log_file_size,
        **(
            {}
            if (waits := waits_for_slaves(note)) is None
            else {"acknowledged": _ACKNOWLEDGED[waits]}
        ),
        "next": shlex.join(
            ["ledgermq", "understudy", "run", "--folder", str(root), *_doors(arguments)]
        ),
    }
    say(arguments, facts)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Follow until told to stop."""
    root: Path = arguments.folder
    if arguments.rate < 1:
        raise ConfigError("must be at least 1", option="--rate", value=arguments.rate)
    access = _access(arguments)
    stop = StopFlag()
    stop.install()
    configure("understudy", LogSection(), node="")
    with stopped_store(root):
        note = _following(root)
        if origin_of(root).product is Product.OURS:
            raise ConfigError(
                "a node has run on the folder: it goes its own way since", directory=str(root)
            )
        rate = arguments.rate * MIB
        understudy = Understudy(root, note, access, stop, MachineClock(), rate=rate)
        with closing(understudy):
            understudy.run()
    return show(arguments)


def show(arguments: argparse.Namespace) -> int:
    """Tell what the process that follows has told last."""
    root: Path = arguments.folder
    note = read_note(root)
    if note is None:
        raise ConfigError("no understudy's folder", directory=str(root))
    status = read_status(root)
    holder = holder_of(root)
    if getattr(arguments, "metrics", False):
        print(metrics_text(note, status, runs=holder is not None))
        return 0
    facts: dict[str, object] = {
        "folder": str(root),
        "master": note.master,
        "promoted_at_ms": note.promoted_at_ms,
        "process": holder,
        **({} if status is None else {**asdict(status), "lag_bytes": status.lag_bytes}),
    }
    return tell(arguments, facts, "\n".join(_told(note, status, holder)))


def promote(arguments: argparse.Namespace) -> int:
    """Make the folder a node's store, and be the node if asked to."""
    root: Path = arguments.folder
    note = read_note(root)
    if arguments.serve and note is not None and note.promoted_at_ms is not None:
        return _serve(arguments, None)
    note = _following(root)
    if not (arguments.fenced or arguments.serve):
        refuse_living_master(note, read_status(root))
    translation = leaving_behind(translation_of(note, root), arguments.leave_behind)
    translation = with_port(translation, arguments)
    translation = with_address(translation, arguments.broker_ip or "")
    text = write_translation(translation, name=f"the settings of {note.remoting}")
    # A promotion that was killed has written them.
    is_written = arguments.settings.exists()
    settings = read_settings(text, name=str(arguments.settings))
    if is_written and arguments.settings.read_text() != text:
        if not arguments.serve:
            raise ConfigError(
                "other settings are there already: move them away, or name another file",
                file=str(arguments.settings),
                setting="--settings",
            )
        # Who begins to serve at once has made them ready before.
        wanted = replace(settings.store, path_root_dir=root.absolute())
        settings = load_settings(arguments.settings)
        for key in _OF_THE_STORE:
            here, there = getattr(settings.store, key), getattr(wanted, key)
            if here != there:
                raise ConfigError(
                    "the settings do not fit what is followed",
                    file=str(arguments.settings),
                    setting=f"store.{key}",
                    value=here,
                    expected=there,
                )
    table = None
    if arguments.serve:
        # Loaded while the master still serves.
        table = ProcessTable.load(start_order(settings))
        if not arguments.fenced:
            _wait_for_masters_end(root, note)
        _end_following(root)
    begin = time.monotonic()
    with stopped_store(root):
        status = read_status(root)
        promotion = finish_store(root, note, status)
        refuse_strange(root, left_behind=settings.store.leave_behind)
        uses = origin_of(root, left_behind=settings.store.leave_behind).uses
    if not is_written:
        write_text(arguments.settings, text)
    with stopped_store(root):
        mark_promoted(root, note, MachineClock())
    facts: dict[str, object] = {
        "folder": str(root),
        **promotion._asdict(),
        "topics_made": list(promotion.topics_made) or "none",
        "not_obeyed": [use.text for use in uses if use.verdict is UseVerdict.UNHEEDED] or "nothing",
        "behind_the_master": "not known" if status is None else status.lag_bytes,
        **({} if not status or status.confirmed < 0 else {"unconfirmed": status.unconfirmed_bytes}),
        "settings": str(arguments.settings),
        **({"accounts": _OPEN} if has_accounts(note) else {}),
        "seconds": round(time.monotonic() - begin, 2),
    }
    say(arguments, facts)
    return _serve(arguments, table) if arguments.serve else 0


def _wait_for_masters_end(root: Path, note: UnderstudyNote) -> None:
    """Wait until nobody answers as the master. It is not asked while it is followed: then the
    process that follows knows.
    """
    print("waits until the master has ended", file=sys.stderr, flush=True)
    while True:
        status = read_status(root)
        if status and status.state == FollowingState.FOLLOWING and holder_of(root) is not None:
            time.sleep(_LOOK_S)
        elif answering(note, status) is not None:
            time.sleep(_ASK_S)
        else:
            return


def _end_following(root: Path) -> None:
    """End the process that follows, if there is one.

    Raises:
        ConfigError: it is another account's, or does not end.
    """
    holder = holder_of(root)
    deadline = time.monotonic() + _END_S
    if holder is not None:
        try:
            os.kill(holder, signal.SIGTERM)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise ConfigError(
                "the process that follows is another account's: end it, or be that account",
                pid=holder,
            ) from error
    while holder is not None and holder_of(root) == holder:
        if time.monotonic() >= deadline:
            raise ConfigError("the process that follows does not end", pid=holder, waited_s=_END_S)
        time.sleep(_LOOK_S)


def _serve(arguments: argparse.Namespace, table: ProcessTable | None) -> int:
    sys.stdout.flush()
    return supervisor.run(load_settings(arguments.settings), arguments.settings, table=table)


def _access(arguments: argparse.Namespace) -> MasterAccess:
    return read_access(arguments.access_key_file, arguments.ca_file)


def _doors(arguments: argparse.Namespace) -> list[str]:
    """Options that ``run`` needs as ``add`` did; the folder keeps none of them."""
    given = {ACCESS_KEY_OPTION: arguments.access_key_file, CA_OPTION: arguments.ca_file}
    return [word for option, path in given.items() if path for word in (option, str(path))]


def _following(root: Path) -> UnderstudyNote:
    """The note of a folder that follows.

    Raises:
        ConfigError: it is none, or is promoted.
    """
    note = read_note(root)
    if note is None:
        raise ConfigError("no understudy's folder: ledgermq understudy add", directory=str(root))
    if note.promoted_at_ms is not None:
        raise ConfigError(
            "the folder is promoted: it is a node's store",
            directory=str(root),
            at=note.promoted_at_ms,
        )
    return note


def _told(note: UnderstudyNote, status: UnderstudyStatus | None, holder: int | None) -> list[str]:
    lines = [f"master    {note.master} (RocketMQ {note.product}), tables from {note.remoting}"]
    if note.promoted_at_ms is not None:
        lines.append(f"promoted  {time_text(note.promoted_at_ms)}: the folder is a node's store")
        return lines
    lines.append(f"process   {holder or 'does not run'}")
    if status is None:
        return lines
    words: dict[str, str] = {
        FollowingState.FOLLOWING: "following since",
        FollowingState.AWAY: "master away since",
        FollowingState.REFUSED: "master refused at",
        FollowingState.ENDED: "ended at",
    }
    state = words.get(status.state, status.state)
    lines.append(f"state     {state} {time_text(status.since_ms, unit='seconds')}")
    lines.append(f"log       {status.durable:,} on disk, {status.dispatched:,} in queues")
    if status.master_end >= 0:
        lines.append(f"lag       {size_text(status.lag_bytes)}, by the last look")
    if status.confirmed >= 0:
        text = f"{status.confirmed:,}, and {size_text(status.unconfirmed_bytes)} here behind it"
        lines.append(f"confirmed {text}")
    if status.remoting not in ("", note.remoting):
        lines.append(f"elected   {status.remoting}")
    if status.tables_at_ms:
        lines.append(f"tables    of {time_text(status.tables_at_ms, unit='seconds')}")
    if status.missing:
        lines.append(f"missing   {status.missing}")
    if status.trouble:
        lines.append(f"trouble   {status.trouble}")
    lines.append(f"told at   {time_text(status.told_at_ms, unit='seconds')}")
    return lines
