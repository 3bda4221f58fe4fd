"""The systems under test, a folder each, and the registry that finds them by kind."""
