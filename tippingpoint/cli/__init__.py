"""The command line: the arguments of all commands, and a module for each that carries it out."""
