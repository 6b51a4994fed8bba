"""The pure part of members: assignment, membership, the group protocol's states."""
