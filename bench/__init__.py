"""Benchmarks: ratios of two things measured side by side in one run, on the shipped processes.

`python -m bench` measures everything; docs/performance.md says how, and what the numbers cannot say.
"""
