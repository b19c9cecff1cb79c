"""``nn.Linear``, ``nn.Embedding``, and a module for equations that are no matrix product.

https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html
"""

import re

from ...records.layer import PlainLayer
from ...records.plan import LayerPlan, ModuleSpec, Piece, Rule

AS_IT_IS = "... -> ..."
TURNED = "features units -> units features"
BIAS = Rule("bias", (Piece("bias", AS_IT_IS),))
MATRIX_PRODUCT = re.compile(r"(?:\.\.\.)?(\w*)(\w),\2(\w)->(?:\.\.\.)?\1\3")


def linear(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.Linear``: PyTorch keeps the outputs as rows."""
    features, units = layer.arrays["kernel"].shape
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("weight", (Piece("kernel", TURNED),)), *((BIAS,) if "bias" in layer.arrays else ())),
        module=ModuleSpec(
            class_name="Linear",
            arguments={"in_features": features, "out_features": units}
            | ({} if "bias" in layer.arrays else {"bias": False}),
        ),
    )


def einsum(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.Linear`` where the equation is one; else the kernel in Keras' own axes."""
    if is_linear(layer):
        return linear(layer, prefix)
    arrays = layer.arrays
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("kernel", (Piece("kernel", AS_IT_IS),)), *((BIAS,) if "bias" in arrays else ())),
        module=ModuleSpec(
            class_name="EinsumDense",
            arguments={"equation": layer.settings["equation"], "kernel_shape": arrays["kernel"].shape}
            | ({"bias_shape": arrays["bias"].shape} if "bias" in arrays else {}),
        ),
    )


def is_linear(layer: PlainLayer) -> bool:
    """Whether an equation multiplies the last axis by a matrix, and a bias is a number for each column."""
    product = MATRIX_PRODUCT.fullmatch(layer.settings["equation"])
    bias = layer.arrays.get("bias")
    kernel = layer.arrays["kernel"].shape
    return product is not None and len(kernel) == 2 and (bias is None or bias.shape == kernel[1:])


def embedding(layer: PlainLayer, prefix: str) -> LayerPlan:
    """``nn.Embedding``: row 0 is a row like others, also where Keras masks it."""
    rows, width = layer.arrays["embeddings"].shape
    return LayerPlan(
        layer=layer,
        prefix=prefix,
        rules=(Rule("weight", (Piece("embeddings", AS_IT_IS),)),),
        module=ModuleSpec(class_name="Embedding", arguments={"num_embeddings": rows, "embedding_dim": width}),
    )


LAY_OUT = {"Dense": linear, "EinsumDense": einsum, "Embedding": embedding}
