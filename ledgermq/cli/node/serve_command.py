"""``ledgermq serve``: the supervisor of a node, which systemd starts.

Exit status: 0 stopped on demand; 1 the settings; 2 the store, or another node that holds it; 3 a
process of the node failed too often, or did not stop.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ledgermq.cli.arguments import takes
from ledgermq.process.settings.settings_loading import load_settings


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve``."""
    parser = subparsers.add_parser("serve", help="run a node in the foreground")
    takes(parser, "--config FILE", "settings, TOML", required=True)
    takes(
        parser, "--check", "say whether these settings fit what is in the store, and touch nothing"
    )
    takes(parser, "--json", "with --check: print JSON")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    path: Path = arguments.config
    settings = load_settings(path)
    if not arguments.check:
        # Imported late: --check needs none of the libraries of a node.
        from ledgermq.daemon import supervisor

        return supervisor.run(settings, path)
    # This needs some of them, and --help none.
    from ledgermq.daemon.directory_check import check_directory

    found = check_directory(settings)
    if arguments.json:
        print(json.dumps({"file": str(path), "ok": True, **found._asdict()}, default=str))
        return 0
    print(f"{path}: ok")
    print(f"{found.root}: {found.text}")
    return 0
