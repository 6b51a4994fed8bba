"""The edge to Delta: the commit table and the dead letters, by delta-rs."""
