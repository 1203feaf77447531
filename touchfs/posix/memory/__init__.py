"""Memory of several processes: objects that one hands to another, and what forked ones share."""
