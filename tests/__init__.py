"""The suite's own tests, and the labs they run on."""
