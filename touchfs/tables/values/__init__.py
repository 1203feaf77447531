"""Values of Arrow columns: whether they can be read, how much memory they take, and what they are as JSON."""
