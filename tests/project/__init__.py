"""The project itself, for its tests: which of them run, its files, its pages, its benchmark."""
