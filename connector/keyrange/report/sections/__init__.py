"""The sections of the page, each with its documents in and its HTML out."""
