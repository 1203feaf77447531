"""What all nodes share: the contract, states, tokens, seeds, children."""
