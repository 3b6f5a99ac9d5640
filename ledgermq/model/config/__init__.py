"""Settings: their names, types, rules and files; RocketMQ's ``broker.conf``.

Begin with ``settings.py``; each key's rule is in ``settings_rules.py``.
"""
