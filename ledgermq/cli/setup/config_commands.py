"""``ledgermq config``: check of a settings file, settings in force, translation of RocketMQ's.

``config_init_command`` has the verb ``init``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from ledgermq.cli.output import tell
from ledgermq.cli.setup.config_init_command import add_init
from ledgermq.model.config.broker_conf import Untranslated, translate_broker_conf, write_translation
from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_change import cluster_fingerprint
from ledgermq.model.config.settings_file import write_settings
from ledgermq.process.settings.settings_loading import load_settings, read_properties_text


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``config`` with its verbs."""
    parser = subparsers.add_parser("config", help="make, check, show and translate settings")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add_init(verbs)

    check = verbs.add_parser("check", help="say what is wrong with a settings file, all at once")
    check.add_argument("file", type=Path, help="settings, TOML")
    check.set_defaults(func=_check)

    show = verbs.add_parser("show", help="print all settings as they are in force")
    show.add_argument("file", type=Path, nargs="?", help="settings, TOML; without: the defaults")
    show.set_defaults(func=_show)

    translate = verbs.add_parser(
        "from-rocketmq",
        help="translate a RocketMQ broker.conf",
        description="Prints settings for the same store on stdout; on stderr, every key that has "
        "no equal, with its value and the reason.",
    )
    translate.add_argument("file", type=Path, help="a broker.conf of RocketMQ 4.9")
    translate.set_defaults(func=_from_rocketmq)

    for verb in (check, show, translate):
        verb.add_argument("--json", action="store_true", help="print JSON")


def _check(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    fingerprint = cluster_fingerprint(load_settings(path))
    document = {"file": str(path), "ok": True, "cluster_fingerprint": fingerprint}
    return tell(arguments, document, f"{path}: ok, cluster fingerprint {fingerprint}")


def _show(arguments: argparse.Namespace) -> int:
    path: Path | None = arguments.file
    settings = Settings() if path is None else load_settings(path)
    print(_as_json(settings) if arguments.json else write_settings(settings).rstrip())
    return 0


def _from_rocketmq(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    translation = translate_broker_conf(read_properties_text(path), name=str(path))
    if arguments.json:
        left = [entry._asdict() for entry in translation.untranslated]
        settings = dataclasses.asdict(translation.settings)
        print(json.dumps({"settings": settings, "untranslated": left}, default=str, indent=2))
        return 0
    print(write_translation(translation, name=path.name).rstrip())
    for entry in translation.untranslated:
        print(_remark(path, entry), file=sys.stderr)
    return 0


def _remark(path: Path, entry: Untranslated) -> str:
    if entry.line == 0:
        return f"{path}: {entry.key} is not set (RocketMQ's default: {entry.value}): {entry.why}"
    return f"{path}:{entry.line}: {entry.key} = {entry.value}: {entry.why}"


def _as_json(settings: Settings) -> str:
    return json.dumps(dataclasses.asdict(settings), default=str, indent=2)
