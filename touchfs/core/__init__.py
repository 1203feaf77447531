"""What all rooms share: errors, content with random access, jobs, progress, names, locations, tokens, JSON text."""
