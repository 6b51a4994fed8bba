"""The nemesis: real queries over a real broker into real Delta tables, a feeder that never rests,
and a seeded schedule of faults; then a checker that knows every record. `python -m nemesis --help`.

Pure are `kinds`, `schedule`, `modes`, `facts`, `checker` and `window_checks`; what touches
processes, brokers and disks are the others. `run` puts them together, each step below a deadline of
`steps`.
"""
