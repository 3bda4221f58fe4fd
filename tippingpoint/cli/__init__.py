"""The command line. Each command is a module, which defines its arguments and carries it out."""
