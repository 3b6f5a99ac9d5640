"""Builds the compiled kernels; every one has its plain Python as the fallback."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import ExecError

KERNELS = (
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
)


def namespace() -> str:
    """The folder below which a module's C types (.pxd) are found by the module's full name.

    It is ``src`` of a checkout; a source archive has no links, so one is made beside what is built.
    """
    if Path("src/ledgermq/formats").exists():
        return "src"
    folder = Path("build/namespace")
    package = folder / "ledgermq"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    if not (package / "formats").exists():
        (package / "formats").symlink_to(Path("formats").resolve())
    return str(folder)


def kernels() -> list[Extension]:
    """The kernels as Cython extensions, each of which may fail to compile.

    There are none when ``LEDGERMQ_PURE=1``, or Cython is missing.
    """
    if os.environ.get("LEDGERMQ_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(
            f"ledgermq.formats.kernels.{name}",
            [f"formats/kernels/{name}.py"],
            extra_compile_args=["-O3"],
        )
        for name in KERNELS
        if Path(f"formats/kernels/{name}.py").exists()
    ]
    built: list[Extension] = cythonize(
        extensions,
        language_level=3,
        build_dir="build/cython",
        annotate=False,
        include_path=[namespace()],
    )
    for one in built:
        # Given to an extension before, it is lost on its way through Cython.
        one.optional = True
    return built


class BuildKernels(build_ext):
    """Leaves out a kernel that cannot be compiled here: it runs as plain Python."""

    def build_extension(self, ext: Extension) -> None:
        """Compile one; setuptools goes on without an optional one that fails."""
        try:
            super().build_extension(ext)
        except OSError as error:
            # Some versions let through that there is no compiler, which ends the whole build.
            raise ExecError(str(error)) from error


setup(ext_modules=kernels(), cmdclass={"build_ext": BuildKernels})
