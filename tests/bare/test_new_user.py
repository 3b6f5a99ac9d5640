"""From nothing to a service with a group, a retry and tests, by what the pages say, in a bare root.

A program is that of its page, as it stands there, at the address that ``ledgermq dev`` prints.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.bare.bare_root import HOME, USER, BareRoot, Suite, processor_s
from tests.bare.test_two_commands import LONG, note
from tests.boot.root import CHECKOUT
from tests.process.test_python_pages import ADDRESS, output_of, program_of

pytestmark = [pytest.mark.bare, pytest.mark.slow, LONG]

PAGES = CHECKOUT / "docs" / "python"
TESTS_PAGE = CHECKOUT / "docs" / "operating" / "testing-your-service.md"
SHOP = f"{HOME}/shop"

INSTALL = f"""set -e
python3 -m venv {SHOP}/.venv
{SHOP}/.venv/bin/pip install --quiet --disable-pip-version-check '.[server]' pytest
"""

# What waits for the node to print its lines ends where that has ended.
DEVELOP = f"""set -e
cd {SHOP}
.venv/bin/ledgermq dev >dev.out 2>&1 &
trap 'kill $!; wait $!' EXIT
until grep --quiet ^Ctrl-C dev.out; do kill -0 $! || {{ cat dev.out; exit 1; }}; sleep 0.1; done
sed "s#{ADDRESS}#$(sed -n 's/^  address *//p' dev.out)#" $1.py >$1_here.py
.venv/bin/python $1_here.py
"""


@pytest.fixture(scope="module")
def shop(bare_root: BareRoot, suite: Suite) -> Path:
    """A folder of a user's own, with an environment that has a node and pytest."""
    began, spent_s = time.monotonic(), processor_s()
    bare_root.run(
        "apt-get update -qq && apt-get install -qq --yes --no-install-recommends python3-venv",
        timeout_s=900,
    )
    bare_root.run(f"mkdir {SHOP} && chown --recursive {USER}: {HOME}")
    bare_root.run(INSTALL, user=USER, timeout_s=1_200)
    seconds, spent_s = time.monotonic() - began, processor_s() - spent_s
    note(suite, "a new user installs", f"seconds {seconds:.0f}, processor {spent_s:.0f}")
    return bare_root.upper / SHOP[1:]


@pytest.mark.parametrize("name", ["README", "first-service", "threads-and-forks"])
def test_a_page_does_what_it_says(bare_root: BareRoot, suite: Suite, shop: Path, name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    (shop / f"{name}.py").write_text(program_of(page))
    began = time.monotonic()
    told = bare_root.run(DEVELOP.replace("$1", name), user=USER, timeout_s=300)
    note(suite, f"a new user runs {name}", f"seconds {time.monotonic() - began:.0f}")

    assert told == output_of(page)


def test_a_service_is_tested_with_the_plugin(bare_root: BareRoot, suite: Suite, shop: Path) -> None:
    first = TESTS_PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    (shop / "test_service.py").write_text(first)
    began = time.monotonic()
    told = bare_root.run(
        f"cd {SHOP} && .venv/bin/python -m pytest -q && ls -A /tmp", user=USER, timeout_s=300
    )
    note(suite, "a new user's tests", f"seconds {time.monotonic() - began:.0f}")

    assert "2 passed" in told
    # Nothing of the nodes is left behind; pytest's own folder may be.
    assert "ledgermq" not in told.splitlines()[-1]
