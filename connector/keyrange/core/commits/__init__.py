"""Individual commits: which records of a partition are done, where that is not all up to an offset.

`ranges` is the algebra of offset ranges; `state` says what is done of each partition; `intake`
what a batch hands out of it; `verdict` what becomes of the state when the batch has been worked on;
`log` what the commit table keeps. All of it is pure: the planning process and the process that
commits come to the same numbers from the same rows.
"""
