"""``--help`` of every command where only what the client needs is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.cli.main import EXTRA_OF_PACKAGE

SOURCE = Path(__file__).parents[3]

HELPS = """
import argparse, contextlib, io, json, sys

LIBRARIES = frozenset(sys.argv[1].split(","))

class Missing:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in LIBRARIES:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, Missing())
from ledgermq.cli import main

def helps(parser, words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([*words, "--help"])
    yield words, status, out.getvalue(), err.getvalue()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from helps(below, [*words, name])

print(json.dumps(list(helps(main.whole_parser(), []))))
"""

NAMED_AS = {"markdown_it": "markdown_it_py", "yaml": "pyyaml"}


@pytest.mark.slow
def test_every_command_and_verb_explains_itself_without_any_optional_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELPS, ",".join(EXTRA_OF_PACKAGE)],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCE)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    told = {" ".join(words): rest for words, *rest in json.loads(done.stdout)}
    assert {
        name: (status, err)
        for name, (status, out, err) in told.items()
        if status or err or not out.startswith(f"usage: ledgermq {name}".rstrip())
    } == {}
    assert {"spark audit", "store check", "backup create", "top", "serve"} <= told.keys()
