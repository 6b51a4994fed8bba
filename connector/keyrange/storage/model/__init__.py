"""What files of checkpoints say."""
