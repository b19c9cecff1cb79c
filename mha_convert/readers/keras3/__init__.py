"""What Keras 3's own formats share: the tree of weights, the JSON, the names of layers."""
