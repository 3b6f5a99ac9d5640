"""Commands that send, receive, find and show messages.

Begin with the module of a command.
"""
