"""The distributions: each package is in one of them, and imports what that one may; wheels work."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tomli
from setuptools import find_packages

from ledgermq.cli.main import COMMANDS, EXTRA_OF_PART
from ledgermq.cli.node.demo_command import DEMO_STORE
from tests.suite.parsed import parsed

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "ledgermq"
BELOW = {
    "client": set[str](),
    "node": {"client"},
    "web": {"client", "node"},
    "spark": {"client", "node"},
}
"""The distributions that get into wheels, and from which others each may import."""


def packages_of(distribution: str) -> set[str]:
    build: dict[str, Any] = tomli.loads(
        (ROOT / "distributions" / distribution / "pyproject.toml").read_text()
    )
    include = build["tool"]["setuptools"]["packages"]["find"]["include"]
    return set(find_packages(str(ROOT), include=include))


def imports_of(path: Path) -> Iterator[str]:
    """What a module names in its imports, wherever they stand."""
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def package_of(imported: str) -> str:
    """The package in which that name, module or package is."""
    while not (ROOT / imported.replace(".", "/") / "__init__.py").is_file():
        imported = imported.rpartition(".")[0]
    return imported


def test_each_package_is_in_one_distribution() -> None:
    parts = {name: packages_of(name) for name in BELOW}
    every = set(find_packages(str(ROOT), include=["ledgermq", "ledgermq.*"]))

    assert [pair for pair in combinations(parts, 2) if parts[pair[0]] & parts[pair[1]]] == []
    assert set().union(*parts.values()) == every


@pytest.mark.parametrize("name", BELOW)
def test_a_distribution_imports_from_those_that_it_requires(name: str) -> None:
    parts = {one: packages_of(one) for one in BELOW}
    allowed = parts[name].union(*(parts[one] for one in BELOW[name]))
    strange = {
        f"{path.relative_to(ROOT)}: {imported}"
        for package in parts[name]
        for path in (ROOT / package.replace(".", "/")).glob("*.py")
        for imported in imports_of(path)
        if imported.startswith("ledgermq.") and package_of(imported) not in allowed
    }

    assert strange == set()


def test_a_command_of_another_distribution_names_the_extra_that_brings_it() -> None:
    rooms = {f"ledgermq.cli.{command.module}".rpartition(".")[0] for command in COMMANDS.values()}
    extras = {"spark": "spark", "node": "server", "web": "server"}
    wanted = {
        package: extras[name]
        for name in extras
        for package in packages_of(name)
        if package.startswith("ledgermq.cli.") or package in ("ledgermq.cold", "ledgermq.observer")
    }

    assert wanted == EXTRA_OF_PART
    assert rooms <= wanted.keys() | packages_of("client")


_IMPORT_ALL = """
import importlib, json, pkgutil, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import ledgermq.pipeline
for module in pkgutil.walk_packages(ledgermq.pipeline.__path__, "ledgermq.pipeline."):
    # PyIceberg, which tables are made with, has an extra of its own.
    if not module.name.startswith("ledgermq.pipeline.tables"):
        importlib.import_module(module.name)
"""


def test_jobs_of_spark_need_no_library_but_those_of_their_extra() -> None:
    pytest.importorskip("pyspark")
    brought = {
        name: {
            re.split(r"[<>=\[]", line)[0]
            for line in (ROOT / "distributions" / name).read_text().splitlines()
            if not line.startswith("#")
        }
        for name in (
            "node/server.txt",
            "web/server.txt",
            "client/compression.txt",
            "spark/spark.txt",
        )
    }
    mine = brought.pop("spark/spark.txt")
    others = {name.replace("-", "_").lower() for name in set().union(*brought.values()) - mine}
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, json.dumps(sorted(others))],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip

    assert "psutil" in others
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder a distribution, with what its wheel installs; kernels as plain Python."""
    folder = tmp_path_factory.mktemp("wheels")
    installed = {}
    for name in BELOW:
        installed[name] = folder / name
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
             "--no-compile", "--no-index", "--target", installed[name],
             ROOT / "distributions" / name],
            check=True, env=os.environ | {"LEDGERMQ_PURE": "1", "TMPDIR": str(folder)},
            timeout=600,
        )  # fmt: skip
        shutil.rmtree(ROOT / "distributions" / name / "build")
    return installed


@pytest.mark.long
@pytest.mark.slow
def test_the_wheels_hold_every_module_once_and_join_into_one_package(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    held = {
        name: {str(path.relative_to(folder)) for path in folder.glob("ledgermq/**/*.py")}
        for name, folder in wheels.items()
    }
    ours = {str(path.relative_to(ROOT)) for path in PRODUCT.rglob("*.py")}

    assert sum(map(len, held.values())) == len(set().union(*held.values()))
    assert set().union(*held.values()) == ours
    assert list((wheels["web"] / "ledgermq/observer/console/documents").glob("*.md"))
    assert (wheels["node"] / "ledgermq/cli/node" / DEMO_STORE.name).is_file()
    for name, folder in wheels.items():
        shutil.copytree(folder / "ledgermq", tmp_path / "ledgermq", dirs_exist_ok=True)
        if name == "node":
            # It starts, and ends with its input, which is empty.
            ran = run_by(tmp_path, libraries(), "dev", "--orders")
            assert (ran.returncode, json.loads(ran.stdout)["http"]) == (0, []), ran.stderr
    done = run_by(tmp_path, libraries(), "serve", "--help")
    assert done.stdout.startswith("usage: ledgermq serve"), done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_the_client_alone_needs_pyzmq_alone_and_says_what_brings_the_rest(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    alone = tmp_path / "libraries"
    alone.mkdir()
    zmq = find_spec("zmq")
    assert zmq is not None and zmq.origin is not None
    for found in Path(zmq.origin).parents[1].glob("*zmq*"):
        (alone / found.name).symlink_to(found)

    helped = {
        name: run_by(wheels["client"], alone, name, "--help")
        for name, command in COMMANDS.items()
        if f"ledgermq.cli.{command.module}".rpartition(".")[0] in packages_of("client")
    }
    refused = run_by(wheels["client"], alone, "serve", "--config", "node.toml")
    counted = run_by(wheels["client"], alone, "spark", "stats", "--help")

    assert {name: done.stderr for name, done in helped.items() if done.returncode} == {}
    assert {"send", "receive", "topic", "group"} <= helped.keys()
    assert refused.stderr == (
        "ledgermq: this command needs the Python package ledgermq.cli.node:"
        " pip install 'ledgermq[server]'\n"
    )
    assert "pip install 'ledgermq[spark]'" in counted.stderr


def libraries() -> Path:
    """Where the libraries of the tests lie."""
    spec = find_spec("zmq")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


def run_by(sources: Path, others: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command by these sources and libraries, and none that are installed beside."""
    program = f"import sys; sys.path += {[str(sources), str(others)]!r}; import ledgermq.cli.main as m; sys.exit(m.main())"  # noqa: E501
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *words],
        capture_output=True, text=True, check=False, cwd=sources, stdin=subprocess.DEVNULL,
    )  # fmt: skip
