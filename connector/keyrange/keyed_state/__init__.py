"""State for each key: what a job's function keeps from one record of a key to the next.

Tasks write files of state here; which of them count, each batch's commit says:
`keyrange.individual_commits.state_runs_after_batch`.
"""
