"""Key ranges: the hash space, how it is cut, and who reads which part."""
