"""PyTorch source that is written for a target."""
