"""Texts in UTF-8."""
