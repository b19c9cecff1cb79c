"""What a tensor is called: renaming by patterns, and matching layers with a model's own keys."""
