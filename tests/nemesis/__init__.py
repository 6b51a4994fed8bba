"""The nemesis: real queries over a real broker into real Delta tables, a feeder that never rests,
and a seeded schedule of faults; then a checker that knows every record.

    python -m nemesis [--mode MODE] [--seconds N] [--seed S] [--only KIND]... [--replay FILE]

Pure are `kinds`, `schedule`, `modes`, `facts` and `checker`; what touches processes, brokers and
disks is `world`, `driver`, `victims`, `faults`, `feeder` and `collect`. `run` puts them together.
"""
