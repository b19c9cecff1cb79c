"""What TensorFlow checkpoints and SavedModels share: bundles, messages, the graph of objects."""
