"""What runs the kernels of a forest: in steps, in threads, with room to grow. It takes rows that are validated."""
