"""Builds the kernels, each with its plain Python as the fallback, and copies the documents.

The build files of distributions/ take from here what they share.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

ROOT = Path(__file__).resolve().parent
PACKAGE = "ledgermq.formats.kernels"

KERNELS = (
    "_views",
    "_scan",
    "_stamp",
    "_link",
    "_ids",
    "_columns",
    "_units",
    "_headers",
    "_sends",
    "_pulls",
    "_rows",
    "_steady",
    "_lone",
    "_secure",
    "_wait",
    "_produce",
    "_exchange",
    "_trees",
)
VIEWS = KERNELS[0]
"""Cython's memory views, in C that it writes itself, which the others share: with a copy in each of
them they take twice as long to compile."""


SUFFIXES = {
    VIEWS: ".c", "_secure": ".pyx", "_wait": ".pyx", "_produce": ".pyx", "_trees": ".pyx",
}  # fmt: skip
"""Of sources that are no Python: what has no plain form in the same file."""


def version() -> str:
    """The version that all distributions have."""
    text = (ROOT / "ledgermq" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"$', text, re.M)
    assert found is not None
    return found[1]


def same_version(distribution: str) -> str:
    """The requirement of another distribution in this very version."""
    return f"{distribution}=={version()}"


def needs(name: str) -> list[str]:
    """The requirements in a file of the folder that is built."""
    lines = Path(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def kernels(root: str = ".") -> list[Extension]:
    """The kernels as Cython extensions, each of which may fail to compile.

    There are none when ``LEDGERMQ_PURE=1``, or Cython is missing; ``LEDGERMQ_OPTIMIZE`` is the
    compiler's option, ``-O3``. ``root`` is the way to the checkout, for setuptools takes no
    absolute paths of sources.
    """
    if os.environ.get("LEDGERMQ_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    folder = f"{root}/ledgermq/formats/kernels"
    extensions = [
        Extension(
            f"{PACKAGE}.{name}",
            [f"{folder}/{name}{SUFFIXES.get(name, '.py')}"],
            extra_compile_args=[os.environ.get("LEDGERMQ_OPTIMIZE", "-O3")],
        )
        for name in KERNELS
    ]
    built: list[Extension] = cythonize(
        extensions,
        language_level=3,
        # Two folders deep: what lies two above the folder that is built lands in build/, too.
        build_dir="build/cython/c",
        annotate=False,
        shared_utility_qualified_name=f"{PACKAGE}.{VIEWS}",
    )
    for one in built:
        # Given to an extension before, it is lost on its way through Cython.
        one.optional = True
    return built


class BuildKernels(build_ext):
    """Leaves out a kernel that cannot be compiled here: it runs as plain Python."""

    def finalize_options(self) -> None:
        """Know the options; unless they say otherwise, as many are compiled at once as can be."""
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count() or 1

    def build_extensions(self) -> None:
        """Compile all; without what they share none of them could be loaded."""
        # The longest first: what is compiled last keeps one processor busy, and the others wait.
        self.extensions.sort(key=lambda one: -Path(one.sources[0]).stat().st_size)
        super().build_extensions()
        if not Path(self.get_ext_fullpath(f"{PACKAGE}.{VIEWS}")).exists():
            for one in self.extensions:
                Path(self.get_ext_fullpath(one.name)).unlink(missing_ok=True)

    def build_extension(self, ext: Extension) -> None:
        """Compile one; setuptools goes on without an optional one that fails."""
        try:
            super().build_extension(ext)
        except OSError as error:
            # Some versions let through that there is no compiler, which ends the whole build.
            raise ExecError(str(error)) from error


class CopyDocuments(build_py):
    """Brings the operating pages along, which the console shows."""

    def run(self) -> None:
        """Copy modules and pages; an editable install reads those of its checkout."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / "ledgermq" / "observer" / "console" / "documents"
        folder.mkdir(parents=True, exist_ok=True)
        for page in sorted((ROOT / "docs" / "operating").glob("*.md")):
            self.copy_file(str(page), str(folder / page.name))


if __name__ == "__main__":
    setup(ext_modules=kernels(), cmdclass={"build_ext": BuildKernels, "build_py": CopyDocuments})
