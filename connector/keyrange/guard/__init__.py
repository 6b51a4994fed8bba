"""The volume guard: watching the volumes of a cluster, and slowing producers down."""
