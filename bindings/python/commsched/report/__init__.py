"""What a training script's communication cost, and what to do about it."""
