"""RocketMQ's clients in other languages than Java, and a later Java one: how they are had and run.

Each is had from its language's own registry by its own tool and kept in ``~/.cache``; what cannot
be had here is said, and its test is left out with that reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compat.rocketmq import oracle_program

CLIENTS = Path(__file__).with_name("clients")
CACHE = Path("~/.cache/ledgermq-clients").expanduser()
MAKE_S = 500.0
RUST_MAKE_S = 2_400.0
"""Its client has some 360 crates."""

RUN_S = 200.0
LIBRARY = "LEDGERMQ_LIBROCKETMQ"
"""Path of the C++ client's ``librocketmq.so``, which its Python package does not bring."""

Command = tuple[Sequence[str], Mapping[str, str]]
"""Words of a program, and what is in its environment besides."""


class NotToBeHadError(Exception):
    """A client cannot be made on this machine; says why."""


def go_client() -> Command:
    """The Go program, compiled."""
    return _go("client", ".")


def go_cluster_client() -> Command:
    """The one that goes on whatever happens to a cluster."""
    return _go("cluster", "./cluster")


def go_grpc_client() -> Command:
    """RocketMQ's gRPC client in Go, compiled."""
    return _go("grpc", ".", folder="gogrpc")


def _go(name: str, package: str, *, folder: str = "go") -> Command:
    program = CACHE / folder / name
    need("go")
    program.parent.mkdir(parents=True, exist_ok=True)
    make_with(["go", "build", "-o", str(program), package], CLIENTS / folder)
    return [str(program)], {}


def node_client() -> Command:
    """The Node program beside its module."""
    return _node("node", "ali-ons")


def node_grpc_client() -> Command:
    """RocketMQ's gRPC client for Node."""
    return _node("nodegrpc", "rocketmq-client-nodejs")


def _node(name: str, module: str) -> Command:
    need("node", "npm")
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("client.js", "package.json"):
        shutil.copy(CLIENTS / name / file, folder / file)
    if not (folder / "node_modules" / module).is_dir():
        make_with(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return ["node", str(folder / "client.js")], {}


def python_client() -> Command:
    """The Python program; its package loads the library from its own folder."""
    library = os.environ.get(LIBRARY)
    if library is None:
        raise NotToBeHadError(f"{LIBRARY} does not say where librocketmq.so is")
    folder = CACHE / "python"
    if not (folder / "rocketmq").is_dir():
        words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        make_with([sys.executable, *words, "rocketmq-client-python==2.0.0"], CLIENTS)
    shutil.copy(library, folder / "rocketmq" / "librocketmq.so")
    return [sys.executable, str(CLIENTS / "python_client.py")], {"PYTHONPATH": str(folder)}


def python_grpc_client() -> Command:
    """RocketMQ's gRPC client in Python, with libraries of its own."""
    folder = CACHE / "python-grpc"
    if not (folder / "rocketmq").is_dir():
        words = ["-m", "pip", "install", "--quiet", "--target", str(folder)]
        make_with([sys.executable, *words, "rocketmq-python-client==5.1.2"], CLIENTS)
    program = CLIENTS / "python_grpc_client.py"
    return [sys.executable, str(program)], {"PYTHONPATH": str(folder)}


def java_grpc_client() -> Command:
    """RocketMQ's gRPC client in Java."""
    return _java("javagrpc", "GrpcSteps", Path(__file__).with_name("GrpcSteps.java").read_text())


def rust_client() -> Command:
    """The Rust program, compiled; the first time takes minutes."""
    return _rust("rust", "rust-client")


def rust_grpc_client() -> Command:
    """RocketMQ's gRPC client in Rust, compiled; the first time takes minutes."""
    return _rust("rustgrpc", "rust-grpc-client")


def _rust(name: str, program: str) -> Command:
    need("cargo")
    folder = CACHE / name
    shutil.copytree(CLIENTS / name, folder, dirs_exist_ok=True)
    make_with(["cargo", "build", "--quiet"], folder, timeout_s=RUST_MAKE_S)
    return [str(folder / "target" / "debug" / program)], {}


def java4_failover() -> Command:
    """``FailOver.java`` with the client of RocketMQ 4.9.8."""
    return _java("java4", "FailOver", Path(__file__).with_name("FailOver.java").read_text())


def java5_features() -> Command:
    """``Features.java`` with the client of RocketMQ 5, which has an enum in another package."""
    source = Path(__file__).with_name("Features.java").read_text()
    return _java("java5", "Features", source.replace("common.protocol", "remoting.protocol"))


def java4_pulled() -> Command:
    """``Pulled.java`` with the client of RocketMQ 4.9."""
    return _java("java4", "Pulled", Path(__file__).with_name("Pulled.java").read_text())


def java5_pulled() -> Command:
    """``Pulled.java`` with the client of RocketMQ 5."""
    return _java("java5", "Pulled", Path(__file__).with_name("Pulled.java").read_text())


def java5_through() -> Command:
    """``Through.java`` with the client of RocketMQ 5.5."""
    return _java("java5broker", "Through", Path(__file__).with_name("Through.java").read_text())


def java5_dump() -> Command:
    """The oracle's ``Dump.java`` with RocketMQ 5.5's client, tools and library of JSON."""
    source = (oracle_program().parent / "src" / "Dump.java").read_text()
    for old, new in (
        ("common.protocol", "remoting.protocol"),
        ("alibaba.fastjson.", "alibaba.fastjson2."),
        ("new JSONObject(true)", "new JSONObject()"),
        ("toJSONString(out,true)", "toJSONString(out)"),
    ):
        source = source.replace(old, new)
    return _java("java5broker", "Dump", source)


def java5_tools() -> Command:
    """``Mqadmin.java`` with the tools of RocketMQ 5."""
    return _java("java5tools", "Mqadmin", Path(__file__).with_name("Mqadmin.java").read_text())


def java5_pop() -> Command:
    """``Pop.java``, beside the tools of RocketMQ 5."""
    return _java("java5tools", "Pop", Path(__file__).with_name("Pop.java").read_text())


def _java(name: str, program: str, source: str) -> Command:
    """A Java program, compiled with the libraries of ``clients/NAME/pom.xml``."""
    need("java", "javac", "mvn")
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    libraries = folder / "lib"
    if not libraries.is_dir():
        pom = str(CLIENTS / name / "pom.xml")
        words = ["-q", "-B", "-f", pom, "dependency:copy-dependencies"]
        make_with(["mvn", *words, f"-DoutputDirectory={libraries}"], folder)
    (folder / f"{program}.java").write_text(source)
    classes = f"{folder / 'classes'}"
    make_with(
        ["javac", "-nowarn", "-cp", f"{libraries}/*", "-d", classes, f"{program}.java"],
        folder,
    )
    opened = ["--add-opens", "java.base/java.nio=ALL-UNNAMED"]
    return ["java", "-Xmx512m", *opened, "-cp", f"{classes}:{libraries}/*", program], {
        # What it logs goes below its home.
        "_JAVA_OPTIONS": f"-Duser.home={folder}"
    }


def run_client(command: Command, *words: str, told: str = "", **environment: str) -> list[str]:
    """All lines that a client says, once it has ended well.

    Args:
        told: all that it can read.
    """
    program, needed = command
    done = subprocess.run(
        [*program, *words],
        env={**os.environ, **needed, **environment},
        input=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True, check=False, timeout=RUN_S,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-10_000:]
    return done.stdout.splitlines()


def need(*programs: str) -> None:
    """Say which of them are not there.

    Raises:
        NotToBeHadError: one is not.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise NotToBeHadError(f"{', '.join(missing)} not found")


def make_with(words: Sequence[str], folder: Path, *, timeout_s: float = MAKE_S) -> None:
    """Run a program that makes something, where ``folder`` is.

    Raises:
        NotToBeHadError: it failed, with the end of what it said.
    """
    try:
        done = subprocess.run(
            list(words), cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise NotToBeHadError(f"{words[0]} did not end within {timeout_s} s") from error
    if done.returncode:
        raise NotToBeHadError(f"{words[0]}: {(done.stdout + done.stderr)[-500:]}")
