"""What happens next in a run, from what was reported and the time: state, messages, rules. Nothing here waits."""
