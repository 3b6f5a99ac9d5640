"""Admission of producers' frames and records: rights, quotas, delays, packs.

Begin with ``frame_admission.py``.
"""
