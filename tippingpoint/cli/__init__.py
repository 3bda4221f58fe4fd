"""The command line, a module a command: each says its arguments, and does what they ask."""
