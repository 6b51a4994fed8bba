"""State for each key: what a job's function keeps from one record of a key to the next."""
