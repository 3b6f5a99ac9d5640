"""Kernels, compiled by Cython, each with its plain Python: scans, stamps, hashes, columns.

Begin with ``kernel.py``, which selects them.
"""
