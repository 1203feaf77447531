"""What a dataset, a sample and a file look like: pages of facts and pictures, for terminals, browsers and notebooks."""
