"""A unit's result as text, and back to the data of a run."""
