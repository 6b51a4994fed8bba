"""Individual commits in the process that commits, and in the executors that work on records.

`each_batch` wraps the function that a job gives to foreachBatch; `api` is what that function
calls. `work` runs in the executors: `state` decides, `alarm` interrupts, `rows` makes the verdict's
rows. `verdicts` keeps a batch's verdict, `judging` takes it into the commit table.
"""
