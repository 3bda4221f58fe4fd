"""Real targets for the tests and the demo, one module each; a lab is private and ends with its starter."""
