"""Kernels, compiled by Cython, each with its plain Python: scans, stamps, hashes, columns.

Begin with ``kernel.py``, which selects them. ``_secure``, ``_wait`` and ``_produce``, which talk to
the operating system, have no plain form here: who uses them does the same another way.
"""
