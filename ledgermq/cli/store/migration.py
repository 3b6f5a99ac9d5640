"""``ledgermq migrate``: what its verbs do, and what they print."""

from __future__ import annotations

import argparse
import ipaddress
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import NamedTuple

import psutil

from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.store.store_upgrade_command import say
from ledgermq.cli.store.way_back import Version, hand_back
from ledgermq.conversion.move_manifest import (
    MoveManifest,
    compare_move,
    make_move_manifest,
    read_move_manifest,
    refuse_differences,
    write_move_manifest,
)
from ledgermq.conversion.rocksdb_tables import (
    RocksTables,
    as_converted,
    convert,
    read_rocksdb,
    was_converted,
)
from ledgermq.daemon.directory_check import check_fit, found_store
from ledgermq.daemon.store_lock import holder_of, stopped_store
from ledgermq.model.config.broker_conf import (
    Translation,
    read_properties,
    translate_broker_conf,
    write_translation,
)
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.config.settings_file import read_settings
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    LedgerError,
    refused_as,
)
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.process.settings.settings_loading import read_properties_text
from ledgermq.process.table_files import (
    offsets_taken,
    outliers_in,
    tables_by_hand,
    unreadable_tables,
)
from ledgermq.store.files.file_names import queues_of_no_topic
from ledgermq.store.origin import Origin, UseVerdict, origin_of
from ledgermq.store.store_directory import StoreDirectory, open_directory
from ledgermq.store.store_view import StoreView

FREE_PER_CENT_MIN = 10
"""Least share of the disk that is to be free: a node that recovers writes queues and index again
before it deletes anything."""

NAMED_MAX = 20


def check_move(arguments: argparse.Namespace) -> int:
    """Say what would keep a node from taking the store over."""
    translation = leaving_behind(_translated(arguments.broker_conf), arguments.leave_behind)
    translation = with_address(translation, None)
    settings = translation.settings
    root = settings.store.path_root_dir
    tell_untranslated(translation, arguments.broker_conf)
    directory = open_directory(root, self_id=_member(settings))
    disk = shutil.disk_usage(root)
    holder = holder_of(root)
    with _seen(settings, _values(arguments.broker_conf), is_open=bool(holder)) as seen:
        obstacles = list(_obstacles(settings, directory, seen)) or _misfits(settings)
        say(
            arguments,
            {
                "directory": str(root),
                **_told_of_origin(settings, seen),
                "log": directory.log.value,
                "member": directory.self_id,
                "broker": f"runs as process {holder}" if holder else "does not run",
                "left_by_crash": directory.aborted and not holder,
                "broker_ip": settings.node.broker_ip,
                "free_per_cent": disk.free * 100 // disk.total,
                "members_of_the_group": len(settings.node.peers) or 1,
                **_told_of_tables(seen, directory.self_id),
                "obstacles": obstacles or "none",
            },
        )
    return 1 if obstacles else 0


def _misfits(settings: Settings) -> list[str]:
    """Why a node with these settings would refuse a store that could be taken over otherwise."""
    try:
        found_store(settings)
    except LedgerError as error:
        return [str(error)]
    return []


def take_store_over(arguments: argparse.Namespace) -> int:
    """Write the settings of a node that takes the store over."""
    begin = time.monotonic()
    if arguments.settings.exists():
        raise ConfigError(
            "settings are there already: move them away, or name another file",
            file=str(arguments.settings),
            setting="--settings",
        )
    translation = leaving_behind(_translated(arguments.broker_conf), arguments.leave_behind)
    translation = with_port(translation, arguments)
    translation = with_address(translation, arguments.broker_ip)
    settings = translation.settings
    root = settings.store.path_root_dir
    values = _values(arguments.broker_conf)
    text = write_translation(translation, name=arguments.broker_conf.name)
    # The text is what a node will read: whatever is wrong with it is found now.
    read_settings(text, name=str(arguments.settings))
    with stopped_store(root):
        directory = open_directory(root, self_id=_member(settings))
        with _seen(settings, values, is_open=False) as seen:
            obstacles = list(_obstacles(settings, directory, seen))
        if obstacles:
            raise ConfigError("the store is not taken over", obstacles=obstacles)
        check_fit(settings)
        if seen.tables is not None:
            with ProgressLine("MiB of the log dispatched") as line:
                convert(
                    root, seen.tables, settings.store,
                    self_id=directory.self_id, told=line.show_bytes,
                )  # fmt: skip
        manifest = _made(root, directory.self_id)
        told = _told_of_tables(_Seen(root), directory.self_id)
        if seen.tables is not None:
            told["converted"] = seen.tables.text
    _write_manifest(arguments, manifest)
    write_text(arguments.settings, text)
    tell_untranslated(translation, arguments.broker_conf)
    _report(
        arguments,
        manifest,
        begin,
        broker_ip=settings.node.broker_ip,
        settings=str(arguments.settings),
        **told,
    )
    return 0


def verify_move(arguments: argparse.Namespace) -> int:
    """Compare the store with what was noted of it."""
    manifest = read_move_manifest(arguments.manifest)
    with ProgressLine("queues") as line:
        comparison, differences = compare_move(
            manifest, arguments.directory, self_id=arguments.self_id, progress=line.show
        )
    refuse_differences(differences, manifest=arguments.manifest)
    facts: dict[str, object] = comparison._asdict()
    facts["went_back"] = [
        f"{one.what}: {one.was}, now {one.found}" for one in comparison.went_back
    ] or "none"
    say(arguments, {"directory": str(arguments.directory), **facts})
    return 0


def go_back(arguments: argparse.Namespace) -> int:
    """Say how RocketMQ gets the store back."""
    begin = time.monotonic()
    root: Path = arguments.directory
    with stopped_store(root):
        directory = open_directory(root, self_id=arguments.self_id)
        manifest = _made(root, directory.self_id)
        handed = hand_back(root, Version(arguments.to), self_id=directory.self_id)
    _write_manifest(arguments, manifest)
    told: dict[str, object] = {"for_rocketmq": arguments.to, "stays": handed.stays or "nothing"}
    if was_converted(root):
        # Its RocksDBs know nothing of what has come since; with this it reads JSON and files.
        told["storeType"] = "default"
    if handed.timer_log_size is not None:
        told["timers_handed_over"] = handed.timers
        told["mappedFileSizeTimerLog"] = handed.timer_log_size
    _report(arguments, manifest, begin, **told)
    return 0


def _made(root: Path, self_id: str | None) -> MoveManifest:
    with ProgressLine("queues") as line:
        return make_move_manifest(root, self_id=self_id, progress=line.show)


def _write_manifest(arguments: argparse.Namespace, manifest: MoveManifest) -> None:
    """Where whoever asks may write, which the owner of the store need not."""
    write_move_manifest(arguments.manifest, manifest)


def _report(
    arguments: argparse.Namespace, manifest: MoveManifest, begin: float, **more: object
) -> None:
    facts: dict[str, object] = {
        "directory": manifest.root,
        "log": manifest.log.value,
        "end": manifest.end,
        "messages": manifest.messages,
        "queues": len(manifest.queues),
        "topics": len(manifest.topics),
        "groups": len(manifest.groups),
        "offsets": sum(map(len, manifest.offsets.values())),
        "manifest": str(arguments.manifest),
        **more,
        "seconds": round(time.monotonic() - begin, 2),
    }
    say(arguments, facts)


def _translated(path: Path) -> Translation:
    return translate_broker_conf(read_properties_text(path), name=str(path))


def _values(broker_conf: Path) -> dict[str, str]:
    entries = read_properties(read_properties_text(broker_conf))
    return {key: entry.value for key, entry in entries.items()}


def tell_untranslated(translation: Translation, path: Path) -> None:
    """Print what of a broker.conf has no effect here, a line each, on stderr."""
    for entry in translation.untranslated:
        if entry.key == "brokerIP1":
            # Translated by _with_address.
            continue
        where = f"{path}:{entry.line}" if entry.line else "RocketMQ's default"
        print(f"{where}: {entry.key} = {entry.value}: {entry.why}", file=sys.stderr)


def leaving_behind(translation: Translation, names: str | None) -> Translation:
    """The same with the uses of RocketMQ 5 that the operator leaves behind, commas in between."""
    if names is None:
        return translation
    found = tuple(name.strip() for name in names.split(","))
    rule = RULES["store.leave_behind"]
    if not rule.takes(found):
        raise ConfigError(
            f"--leave-behind must be {rule.allowed}", value=names, setting="store.leave_behind"
        )
    store = replace(translation.settings.store, leave_behind=found)
    origins = {**translation.origins, "store.leave_behind": "as asked for"}
    settings = replace(translation.settings, store=store)
    return translation._replace(settings=settings, origins=origins)


def with_address(translation: Translation, given: str | None) -> Translation:
    """The same with the address that clients are told: as asked for, or as the broker has told it.

    Without ``brokerIP1`` that was one of this host; the default here is a loopback one.
    """
    settings, origins = translation.settings, dict(translation.origins)
    if given is None and "node.broker_ip" in origins:
        return translation
    origins["node.broker_ip"] = "as asked for" if given else "brokerIP1, of this host"
    node = replace(settings.node, broker_ip=given or local_address())
    return translation._replace(settings=replace(settings, node=node), origins=origins)


def local_address() -> str:
    """What RocketMQ tells clients where broker.conf has no ``brokerIP1``: an address of this host,
    of no bridge; IPv4 rather than IPv6, and one of 192.168.… where there is no other.
    """
    found: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []
    for name, addresses in psutil.net_if_addrs().items():
        if Path("/sys/class/net", name, "bridge").exists():
            continue
        texts = [one.address for one in addresses if one.family in (AF_INET, AF_INET6)]
        # A scope of IPv6 holds on this host alone.
        found += [ipaddress.ip_address(text) for text in texts if "%" not in text]
    far = [one for one in found if not one.is_loopback]
    far.sort(key=lambda one: (one.version, str(one).startswith("192.168.")))
    return str(far[0]) if far else "127.0.0.1"


def with_port(translation: Translation, arguments: argparse.Namespace) -> Translation:
    """The same with a port for RocketMQ's clients, and whatever else was asked for."""
    settings, origins = translation.settings, dict(translation.origins)
    listen = replace(
        settings.listen,
        remoting=arguments.remoting or f"*:{settings.node.listen_port}",
        name_server=arguments.name_server,
        runtime_dir=arguments.runtime_dir or settings.listen.runtime_dir,
        trusted_network=True,
    )
    settings = replace(settings, listen=listen)
    origins["listen.remoting"] = "listenPort"
    # The port of a RocketMQ broker is open in the same way.
    origins["listen.trusted_network"] = "listenPort"
    for key, given in (
        ("listen.name_server", arguments.name_server),
        ("listen.runtime_dir", arguments.runtime_dir),
        ("remoting.addresses", arguments.address),
        ("raft.keys_dir", arguments.keys),
    ):
        if given:
            origins[key] = "as asked for"
    if arguments.address:
        remoting = replace(settings.remoting, addresses=tuple(arguments.address))
        settings = replace(settings, remoting=remoting)
    if arguments.keys is not None:
        settings = replace(settings, raft=replace(settings.raft, keys_dir=arguments.keys))
    return translation._replace(settings=settings, origins=origins)


def _member(settings: Settings) -> str | None:
    return settings.node.self_id if settings.store.log is LogKind.DLEDGER else None


class _Seen(NamedTuple):
    """A store as a node would find it.

    Attributes:
        root: where to look: the store's directory, or one that has links to it.
        tables: what is in RocksDB, and becomes files when the store is taken over.
        trouble: why that cannot be read.
    """

    root: Path
    tables: RocksTables | None = None
    trouble: str | None = None


@contextmanager
def _seen(settings: Settings, broker_conf: Mapping[str, str], *, is_open: bool) -> Iterator[_Seen]:
    root = settings.store.path_root_dir
    tables, trouble = None, None
    if StrangeUse.TABLES not in settings.store.leave_behind:
        try:
            tables = read_rocksdb(root, broker_conf, is_open=is_open)
        except (ConfigError, CorruptLogError) as error:
            trouble = str(error)
    if tables is None:
        yield _Seen(root, None, trouble)
        return
    with as_converted(root, tables) as converted:
        yield _Seen(converted, tables)


def _obstacles(settings: Settings, directory: StoreDirectory, seen: _Seen) -> Iterator[str]:
    """What has to be put right before the store can be taken over."""
    root = directory.root
    if directory.log is not settings.store.log:
        yield (
            f"broker.conf says that the log is {settings.store.log.value}, and the directory has a"
            f" {directory.log.value} log"
        )
    for use in _origin(settings, seen).refused:
        what = use.text
        if use.name == StrangeUse.TABLES and seen.trouble is not None:
            what = f"{use.what}: {seen.trouble}"
        yield f"{root}: of RocketMQ 5: {what}; or --leave-behind {use.name}"
    for table in unreadable_tables(seen.root / "config"):
        copy = "its copy (.bak) would be taken"
        if table.copy_reason is not None:
            copy = f"nor can its copy (.bak): {table.copy_reason}"
        yield f"{root / 'config' / table.path.name}: cannot be read ({table.reason}); {copy}"
    disk = shutil.disk_usage(root)
    if disk.free * 100 < disk.total * FREE_PER_CENT_MIN:
        yield f"{root}: less than {FREE_PER_CENT_MIN} % of the disk are free"
    if not os.access(root, os.R_OK | os.W_OK):
        yield f"{root}: not readable and writable for this user"


def _origin(settings: Settings, seen: _Seen) -> Origin:
    return origin_of(seen.root, self_id=_member(settings), left_behind=settings.store.leave_behind)


def _told_of_origin(settings: Settings, seen: _Seen) -> dict[str, object]:
    """Whose store it is, and what of it stays for RocketMQ."""
    origin = _origin(settings, seen)
    kept = [use.name for use in origin.uses if use.verdict is UseVerdict.KEPT]
    taken = [use.text for use in origin.uses if use.verdict is UseVerdict.TAKEN]
    if seen.tables is not None:
        taken.insert(0, seen.tables.text)
        if seen.tables.has_queues and (seen.root / "abort").exists():
            taken.insert(
                1,
                "RocketMQ was killed, or runs: what its queues in RocksDB lack yet is built, too,"
                " and not counted here",
            )
        if lights := seen.tables.light_queues:
            kept.append(f"{lights} light queues, which RocksDB alone has")
    unheeded = [use.text for use in origin.uses if use.verdict is UseVerdict.UNHEEDED]
    return {
        "store_of": f"{origin.product}, {origin.mode}",
        "taken_over": taken or "all",
        "stays_for_rocketmq": kept or "nothing",
        "not_obeyed": unheeded or "nothing",
    }


def _told_of_tables(seen: _Seen, self_id: str | None) -> dict[str, object]:
    """What a node makes of RocketMQ's tables when it starts on them."""
    directory = open_directory(seen.root, self_id=self_id)
    config = directory.root / "config"
    is_built_later = seen.tables is not None and seen.tables.has_queues
    outliers = ["known when queues are built"] if is_built_later else _outliers(directory)
    return {
        "consumed_offsets": offsets_taken(config),
        "queues_of_no_topic": _queues_of_no_topic(directory) or "none",
        "tables_written_by_hand": tables_by_hand(config) or "none",
        "positions_outside_their_queues": outliers or "none",
    }


def _queues_of_no_topic(directory: StoreDirectory) -> list[str]:
    """Folders of queues, as of light queues, that a node leaves alone."""
    with refused_as("queues not read", why="", directory=directory.consume_queues):
        found = [path.name for path in queues_of_no_topic(directory.consume_queues)]
    return _first_of([ascii(name)[1:-1] for name in found])


def _first_of(lines: list[str]) -> list[str]:
    if len(lines) <= NAMED_MAX:
        return lines
    return [*lines[:NAMED_MAX], f"and {len(lines) - NAMED_MAX} more"]


def _outliers(directory: StoreDirectory) -> list[str]:
    """Positions that RocketMQ has left behind, and a node puts right when it starts."""
    config = directory.root / "config"
    if unreadable_tables(config):
        # Obstacles, which are told.
        return ["not known: a table cannot be read"]
    with closing(StoreView(directory.root, self_id=directory.self_id)) as view:
        ends = {(one.topic, one.queue_id): one.end for one in view.queues()}
    found = outliers_in(config, lambda queue: ends.get(queue, 0))
    lines = [
        f"{one.file}: {f'group {one.group}, ' if one.group else ''}topic {one.queue.topic}, queue"
        f" {one.queue.queue_id}: {one.was}, beyond its queue's end; a node begins at {one.position}"
        for one in found
    ]
    return _first_of(lines)


def write_text(path: Path, text: str) -> None:
    """Write settings into the file ``path``.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("settings not written", why="within", path=path):
        path.write_text(text)
        # No secret, and what the node's account reads, whoever types this.
        path.chmod(0o644)
