"""Fuzzing: any bytes into any public decoder or opener give a value or this library's error, and change nothing.

`test_fuzz.py` is the short run of the normal tests; `python -m tests.fuzz --inputs 3000000` is the long campaign.
"""
