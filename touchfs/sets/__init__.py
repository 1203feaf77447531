"""Sets of samples as `touchfs.open` gives them: what they tell about themselves, and their exports."""
