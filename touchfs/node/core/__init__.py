"""The contract of all nodes, and what they have in common: states, tokens, seeds, children, descriptions."""
