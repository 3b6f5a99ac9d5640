"""``pip install`` from a checkout where nothing can be compiled: kernels run as plain Python."""

from __future__ import annotations

import pytest

from tests.bare.bare_root import HOME, USER, BareRoot
from tests.bare.test_two_commands import LONG
from tests.bare.test_wheels import CONVERSE

pytestmark = [pytest.mark.bare, pytest.mark.slow]

INSTALL = """set -e
for name in node client; do python3 -m venv --clear ~/$name; done
~/client/bin/pip install --quiet --disable-pip-version-check ./distributions/client
~/node/bin/pip install --quiet --disable-pip-version-check '.[server]'
"""

KERNELS = """set -e
cd
for name in node client; do
    $name/bin/python -c 'from ledgermq.formats.kernels import kernel; print(kernel.compiled)'
done
"""


def test_a_node_and_a_client_of_a_checkout_talk_where_there_is_no_compiler(
    bare_root: BareRoot,
) -> None:
    _apt(bare_root, "python3-venv")
    bare_root.run(f"chown --recursive {USER}: {HOME}/ledgermq")
    assert bare_root.run("command -v cc gcc clang || echo none").strip() == "none"

    _install_and_talk(bare_root)


@LONG
def test_they_talk_where_a_compiler_lacks_pythons_headers(bare_root: BareRoot) -> None:
    _apt(bare_root, "gcc libc6-dev python3-venv")
    assert not bare_root.run("find /usr/include -name Python.h")

    _install_and_talk(bare_root)


def _install_and_talk(bare_root: BareRoot) -> None:
    bare_root.run(INSTALL, user=USER, timeout_s=1_200)

    assert bare_root.run(KERNELS, user=USER) == "False\nFalse\n"
    told = bare_root.run(f"rm -rf ~/store ~/run\n{CONVERSE}", user=USER, timeout_s=300)
    assert "hello from pip\n" in told
    libraries = bare_root.run("~/client/bin/pip list --format freeze", user=USER)
    names = {line.partition("==")[0] for line in libraries.split()}
    assert names - {"pip", "setuptools"} == {"ledgermq", "pyzmq"}


def _apt(bare_root: BareRoot, packages: str) -> None:
    bare_root.run(
        f"apt-get update -qq && apt-get install -qq --yes --no-install-recommends {packages}",
        timeout_s=900,
    )
