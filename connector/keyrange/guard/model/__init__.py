"""The pure part of the volume guard."""
