"""Saves quantized and LoRA layers in every format, with the kernels that genuine Keras itself makes of them.

`python tests/support/quantized_models.py FOLDER [MODEL…]`, under the Keras in question (3.11 or later, on TensorFlow). Besides
the files it writes `expected.npz`: for each model and projection

- `kernel`: dequantized by Keras' own operations; for float8 the stored one; for LoRA, Keras' own merged kernel;
- `answer`: what genuine Keras' projection returns for an identity, without the bias: its kernel, as exactly as Keras'
  arithmetic allows, whichever path it takes. For float8 it is rounded, and left out.

and for each model `query`, `key`, `value`, `output`, `scores` of a call.
"""

import os
import sys
from pathlib import Path

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras.src import quantizers

IN_BLOCKS = hasattr(keras.quantizers, "Int4QuantizationConfig")  # Keras 3.14 and later
ODD = {"num_heads": 3, "key_dim": 5, "value_dim": 3, "output_shape": (3, 3)}
EVEN = {"num_heads": 2, "key_dim": 4}
GROUPED = {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
# Options of the layer, widths of query and key, mode, block size of int4, rank and alpha of LoRA.
MODELS = {
    "int8": (ODD, (7, 9), "int8", None, None),
    "int8-without-bias": (ODD | {"use_bias": False}, (7, 9), "int8", None, None),
    "int8-one-head": ({"num_heads": 1, "key_dim": 4}, (8, 8), "int8", None, None),
    "int8-bfloat16": (EVEN | {"dtype": "bfloat16"}, (8, 8), "int8", None, None),
    "int4": (EVEN, (8, 8), "int4", None, None),
    "int4-odd": (ODD, (7, 9), "int4", None, None),
    "int4-without-bias": (ODD | {"use_bias": False}, (7, 9), "int4", None, None),
    "int4-one-head": ({"num_heads": 1, "key_dim": 4}, (8, 8), "int4", None, None),
    "int4-blocks": (ODD, (7, 9), "int4", 4, None),
    "int4-channels": (ODD, (7, 9), "int4", -1, None),
    "int4-float16": (ODD | {"dtype": "float16"}, (7, 9), "int4", None, None),
    "float8": (ODD, (7, 9), "float8", None, None),
    "lora": (ODD, (7, 9), None, None, (3, None)),
    "lora-alpha": (ODD, (7, 9), None, None, (3, 7)),
    "lora-float64": (ODD | {"dtype": "float64"}, (7, 9), None, None, (3, None)),
    "lora-bfloat16": (ODD | {"dtype": "bfloat16"}, (7, 9), None, None, (3, None)),
    "int8-lora": (ODD, (7, 9), "int8", None, (3, None)),
    "int4-lora": (ODD | {"use_bias": False}, (7, 9), "int4", None, (3, None)),
    "int8-some": (ODD, (7, 9), "int8", None, None),
    "lora-some": (ODD, (7, 9), None, None, (3, None)),
    "int8-grouped": (GROUPED, (8, 8), "int8", None, None),
    "int4-grouped": (GROUPED, (8, 8), "int4", None, None),
}
SOME = {"int8-some": ("query", "output"), "lora-some": ("query", "value")}  # of other models all projections
ROLES = {"query": "_query_dense", "key": "_key_dense", "value": "_value_dense", "output": "_output_dense"}


def main(folder: Path, names: list[str]) -> None:
    """Save every model, or those that are named."""
    expected = {}
    for number, name in enumerate(MODELS):
        if names and name not in names:
            continue
        keras.utils.clear_session()
        expected |= {f"{name}|{key}": value for key, value in save(folder, name, number).items()}
    np.savez_compressed(folder / "expected.npz", **expected)


def save(folder: Path, name: str, number: int) -> dict[str, np.ndarray]:
    """One model in all formats."""
    options, widths, mode, block, lora = MODELS[name]
    random = np.random.default_rng(number)
    query, key = keras.Input((5, widths[0])), keras.Input((6, widths[1]))
    kind = "GroupQueryAttention" if "head_dim" in options else "MultiHeadAttention"
    layer = getattr(keras.layers, kind)(**options, name="attn")
    model = keras.Model([query, key], layer(query, key))
    for weight in model.weights:
        weight.assign((0.5 * random.standard_normal(weight.shape)).astype("float32"))
    parts = {role: getattr(layer, attribute) for role, attribute in ROLES.items()}
    for part in (parts[role] for role in SOME.get(name, ROLES)):
        if lora and not mode:
            adapt(part, *lora, random)
        if mode:
            part.quantize(
                mode, **({"config": keras.quantizers.Int4QuantizationConfig(block_size=block)} if block else {})
            )
        if lora and mode:
            adapt(part, *lora, random)
    inputs = [random.standard_normal((2, n, width)).astype("float32") for n, width in zip((5, 6), widths, strict=True)]
    output, scores = layer(*inputs, return_attention_scores=True)
    (folder / name).mkdir(parents=True)
    model.save(folder / name / "model.keras")
    model.save(folder / name / "folder", zipped=False)
    model.save_weights(folder / name / "model.weights.h5")
    model.save(folder / name / "model.h5")
    tf.train.Checkpoint(model).write(str(folder / name / "checkpoint" / "ck"))
    model.export(folder / name / "export", verbose=False)
    found = {"query": inputs[0], "key": inputs[1], "value": inputs[1], "output": output, "scores": scores}
    for role, part in parts.items():
        found[f"{role}_kernel"] = kernel_of(part)
        if mode != "float8":
            found[f"{role}_answer"] = answer_of(part, found[f"{role}_kernel"].shape, 2 if role == "output" else 1)
    return {key: np.asarray(ops.convert_to_numpy(value)).astype("float64") for key, value in found.items()}


def adapt(part, rank: int, alpha: float | None, random: np.random.Generator) -> None:
    """Give a projection LoRA adapters."""
    part.enable_lora(rank, lora_alpha=alpha)
    for weight in (part.lora_kernel_a, part.lora_kernel_b):
        weight.assign((0.3 * random.standard_normal(weight.shape)).astype("float32"))


def kernel_of(part):
    """Keras' own kernel, from Keras' own operations."""
    if part.quantization_mode in (None, "float8"):
        return part.kernel
    if part.quantization_mode == "int8":
        kernel = ops.divide(part._kernel, part._adjust_scale_for_dequant(part.kernel_scale))
    elif hasattr(part, "g_idx"):
        unpacked = quantizers.unpack_int4(part._kernel, part._int4_unpacked_column_size, axis=-1)
        kernel = quantizers.quantizers.dequantize_with_sz_map(
            unpacked, part.kernel_scale, part.kernel_zero, part.g_idx, group_axis=0
        )
        kernel = ops.reshape(kernel, part.original_kernel_shape)
    elif IN_BLOCKS:
        unpacked = quantizers.unpack_int4(part._kernel, part._int4_unpacked_column_size, axis=-1)
        kernel = ops.reshape(
            ops.divide(ops.cast(unpacked, part.compute_dtype), part.kernel_scale), part.original_kernel_shape
        )
    else:
        unpacked = quantizers.unpack_int4(part._kernel, part._orig_length_along_pack_axis, axis=part._int4_pack_axis)
        kernel = ops.divide(unpacked, part._adjust_scale_for_dequant(part.kernel_scale))
    if part.lora_enabled:
        update = (part.lora_alpha / part.lora_rank) * ops.matmul(part.lora_kernel_a, part.lora_kernel_b)
        kernel = ops.add(kernel, update)
    return kernel


def answer_of(part, shape: tuple[int, ...], inputs: int):
    """What the projection makes of an identity."""
    rows = int(np.prod(shape[:inputs]))
    identity = np.eye(rows).reshape(1, rows, *shape[:inputs])
    output = ops.convert_to_numpy(part(ops.cast(identity, part.compute_dtype))).astype("float64")
    bias = 0 if part.bias is None else ops.convert_to_numpy(part.bias).astype("float64")
    return (output - bias).reshape(shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
