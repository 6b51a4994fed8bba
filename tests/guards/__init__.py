"""The volume guard in tests."""
