"""The parts of a report's document, one module each."""
