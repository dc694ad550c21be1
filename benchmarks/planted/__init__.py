"""Recordings with a known fault, made by a discrete-event model, and how well the analysis names it.

`python -m benchmarks.planted` writes each case as a trace, analyses it, and compares the first finding
and its recoverable time with what the model knows: it also simulates the program with the fault mended.
"""
