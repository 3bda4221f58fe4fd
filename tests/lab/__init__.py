"""Real targets for the tests and the demo, one module each; every lab is private and ends with whoever started it."""
