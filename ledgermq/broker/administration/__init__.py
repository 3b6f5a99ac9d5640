"""Calls of administrators, a module for each subject: topics, groups, offsets, users, archives.

Begin with ``topic_calls.py``; every other ``*_calls.py`` is made like it.
"""
