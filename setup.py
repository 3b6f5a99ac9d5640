"""Builds the compiled kernels; every one has its plain Python as the fallback."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

KERNELS = ("_scan", "_stamp", "_link", "_ids", "_columns", "_units", "_headers", "_pulls")


def kernels() -> list[Extension]:
    """The kernels as Cython extensions, or none when ``LEDGERMQ_PURE=1`` or Cython is missing."""
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
            optional=True,
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
        # A module's C types (.pxd) are looked for by the module's full name.
        include_path=["src"],
    )
    return built


setup(ext_modules=kernels())
