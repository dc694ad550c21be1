"""The recorder: what runs inside the user's process, and what starts it there.

Modules on the inside (`boot`, `agent`, `writer`, `pysampler`, `windows`, `hooks`, ...) import nothing but the
standard library until the user's script has loaded torch itself. `launch` and `api` are the outside.
"""
