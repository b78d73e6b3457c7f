"""What must hold of the arrays of heads."""
