"""Request codes of RocketMQ's tools: topics, groups, users, brokers, connections.

Begin with ``topic_codes.py``; every other ``*_codes.py`` is made like it.
"""
