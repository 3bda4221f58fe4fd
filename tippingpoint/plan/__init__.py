"""Plans: their models, how they are read, and the errors of a wrong one."""
