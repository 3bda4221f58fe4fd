"""What is done to a target: claim and spawn, their load and the contract each has with a target."""
