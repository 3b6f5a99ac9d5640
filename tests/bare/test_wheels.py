"""``pip install ledgermq`` from the wheels of a release, where there is no compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bare.bare_root import HOME, USER, BareRoot, Suite, processor_s
from tests.bare.test_two_commands import IS_LONG, LONG, note
from tests.boot.root import CHECKOUT, checkout_files

pytestmark = [pytest.mark.bare, pytest.mark.slow]

INSTALL = f"""set -e
cd {HOME}
for name in node client; do python3 -m venv $name; done
client/bin/pip install --quiet --disable-pip-version-check --find-links wheels "ledgermq==$1"
node/bin/pip install --quiet --disable-pip-version-check --find-links wheels "ledgermq[server]==$1"
"""

CONVERSE = f"""set -e
cd {HOME}
node/bin/ledgermq config show |
    sed 's#"/var/lib/ledgermq"#"{HOME}/store"#; s#"/run/ledgermq"#"{HOME}/run"#' >node.toml
node/bin/ledgermq serve --config node.toml 2>node.log &
trap 'kill $! 2>/dev/null || true' EXIT
node/bin/ledgermq status --config node.toml --wait-ready 60 || {{ cat node.log; exit 1; }}
client/bin/ledgermq send --address ipc://{HOME}/run orders 'hello from pip'
client/bin/ledgermq receive --address ipc://{HOME}/run orders
kill -TERM $!
wait $!
trap - EXIT
node/bin/ledgermq store check store
"""

COMPILED = "node/bin/python -c 'from ledgermq.formats.kernels import _scan; print(_scan.__file__)'"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels that a release has, for as many versions of Python as this machine has.

    Unless LEDGERMQ_BARE_LONG=1 those for any machine alone, whose kernels are plain.
    """
    if given := os.environ.get("LEDGERMQ_BARE_WHEELS"):
        made = sorted(Path(given).glob("*.whl"))
        assert made, given
        return made
    folder = tmp_path_factory.mktemp("wheels")
    if IS_LONG:
        script = [CHECKOUT / "packaging" / "make-wheels.sh", "--output", folder]
        subprocess.run(script, check=True, stdin=subprocess.DEVNULL, timeout=1_800)
    else:
        make_plain_wheels(folder)
    return sorted(folder.glob("*.whl"))


def make_plain_wheels(folder: Path) -> None:
    """Build those of a client and a node from a copy of this checkout."""
    tree = folder / "tree"
    for name in checkout_files():
        if (CHECKOUT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    for name in ("client", "node", "web"):
        command = [*pip, "--wheel-dir", folder, tree / "distributions" / name]
        subprocess.run(command, check=True, env={**os.environ, "LEDGERMQ_PURE": "1"}, timeout=600)


@LONG
def test_the_list_of_components_has_each_library_in_its_tested_version(wheels: list[Path]) -> None:
    told = subprocess.run(
        [CHECKOUT / "packaging" / "make-sbom.sh", wheels[0].parent],
        check=True, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    bom = json.loads(Path(told.stdout.strip()).read_text())
    constraints = (CHECKOUT / "packaging" / "constraints.txt").read_text().splitlines()
    listed = {f"{one['name']}=={one['version']}" for one in bom["components"]}
    vendored = {line for line in listed if line.startswith("uplot==")}
    asked = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    assert len(vendored) == 1
    # Libraries write a name of theirs with a hyphen here and an underscore there.
    tested = {line.replace("_", "-") for line in constraints}
    assert {line.replace("_", "-") for line in listed - vendored} <= tested
    assert {line.partition("==")[0] for line in listed} >= {"isal", "lz4", "numpy", "pyzmq"}
    assert vendored <= set(asked["root-component"]) <= listed <= asked.keys()
    assert "licenses" in bom["metadata"]["component"]


def test_a_node_and_a_client_from_wheels_talk_where_there_is_no_compiler(
    bare_root: BareRoot, suite: Suite, wheels: list[Path]
) -> None:
    bare_root.run(
        "apt-get update -qq && apt-get install -qq --yes --no-install-recommends python3-venv",
        timeout_s=600,
    )
    folder = bare_root.upper / HOME[1:] / "wheels"
    folder.mkdir()
    for wheel in wheels:
        shutil.copy(wheel, folder)
    bare_root.run(f"chown --recursive {USER}: {HOME}")

    assert bare_root.run("command -v cc gcc clang || echo none").strip() == "none"
    version = wheels[0].name.split("-")[1]
    began, spent_s = time.monotonic(), processor_s()
    bare_root.run(INSTALL.replace("$1", version), user=USER, timeout_s=600)
    told = bare_root.run(CONVERSE, user=USER, timeout_s=300)
    seconds, spent_s = time.monotonic() - began, processor_s() - spent_s
    note(suite, "wheels", f"first message: seconds {seconds:.0f}, processor {spent_s:.0f}")
    kernel = bare_root.run(f"cd {HOME} && {COMPILED}", user=USER)
    libraries = bare_root.run(f"cd {HOME} && client/bin/pip list --format freeze", user=USER)

    assert "hello from pip\n" in told
    names = {line.partition("==")[0] for line in libraries.split()}
    assert names - {"pip", "setuptools"} == {"ledgermq", "pyzmq"}
    tag = f"cp{suite.python.replace('.', '')}"
    assert (".so" in kernel) == any(tag in wheel.name for wheel in wheels), kernel
