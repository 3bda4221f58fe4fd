"""What a person asks for: the plan, how it is read, and what is said of a wrong one."""
