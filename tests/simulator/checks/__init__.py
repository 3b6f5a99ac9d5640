"""Checkers: the promises of consensus, log and services, and healing after faults.

Begin with ``checker.py``.
"""
