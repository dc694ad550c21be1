"""Reads sessions, yields findings; draws and prints nothing."""
