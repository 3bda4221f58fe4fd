"""Real targets on one machine, for the demo, the tests and by hand; a lab is private and ends with its starter."""
