"""Commands about what a broker keeps: topics, groups, offsets, users, quotas, timers.

Begin with the module of a command.
"""
