"""Weights in HDF5 of any size, made here and instantly."""

import h5py
import numpy as np


def hdf5_model(path, layers=8, width=256, **storage):
    """Weights as Keras 3 names them; ``storage`` says how HDF5 keeps them."""
    random = np.random.default_rng(0)
    shapes = dict.fromkeys(("query", "key", "value"), (width, 4, width // 4)) | {"output": (4, width // 4, width)}
    with h5py.File(path, "w") as file:
        file.create_group("vars")
        for index in range(layers):
            name = "multi_head_attention" + (f"_{index}" if index else "")
            for role, shape in shapes.items():
                kernel = random.standard_normal(shape).astype("float32")
                group = file.create_group(f"layers/{name}/{role}_dense/vars")
                group.create_dataset("0", data=kernel, **storage)
                group.create_dataset("1", data=kernel[0] if role != "output" else kernel[0, 0])
    return path
