"""Which entries among a model's layers are operations: functions of ``keras.ops`` or of TensorFlow, without weights.

Keras 3 lists operations among the layers. In ``.keras`` files, their modules distinguish them. A ``.h5`` has no
modules, and some names belong to a layer as well as to an operation: ``Add`` as a layer takes one list of tensors, as
an operation two tensors. Taking one for the other computes something else without an error.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..readers.keras_classes import registered_name
from ..records.graph import Call
from .plain import MalformedError

MODULES = ("keras.src.ops", "keras.ops", "keras_core.src.ops", "keras_core.ops")
# Layers of Keras 2 that call one function of TensorFlow.
OF_TENSORFLOW = frozenset(
    ("TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty", "TensorFlowOpLayer")
)
CLASSES = """
    Absolute AdaptiveAveragePool AdaptiveMaxPool Add AffineTransform All AllClose Amax Amin Angle Any Append Arange
    Arccos Arccosh Arcsin Arcsinh Arctan Arctan2 Arctanh Argmax Argmin Argpartition Argsort Array ArraySplit
    AssociativeScan Average AveragePool BatchNorm BinaryCrossentropy Bincount BitwiseAnd BitwiseInvert
    BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor BroadcastTo CDist CTCDecode CTCLoss Cast
    CategoricalCrossentropy Cbrt Ceil Celu Cholesky CholeskyInverse Clip Concatenate Cond Conjugate Conv
    ConvTranspose ConvertToTensor Copy Corrcoef Correlate Cos Cosh CountNonzero CropImages Cross Cumprod Cumsum
    Deg2rad DepthToSpace DepthwiseConv Det Diag Diagflat Diagonal Diff Digitize Divide DivideNoNan Dot
    DotProductAttention Dsplit Dstack Eig Eigh Einsum ElasticTransform Elu EmptyLike Equal Erf Erfc Erfinv Exp Exp2
    ExpandDims Expm1 ExtractPatches ExtractSequences FFT FFT2 Fabs Flip Fliplr Flipud Floor FloorDivide Fmax Fmin
    Fmod Fold ForiLoop Full FullLike GaussianBlur Gcd Gelu Geomspace GetItem Glu Greater GreaterEqual HSVToRGB
    HardShrink HardSigmoid HardSilu HardTanh Heaviside Histogram Hsplit Hstack Hypot I0 IFFT2 IRFFT ISTFT Imag
    InTopK Inner Inv IsIn Isclose Isfinite Isinf Isnan Isneginf Isposinf Isreal JVP Kron LayerNorm Lcm Ldexp
    LeakyRelu LeftShift Less LessEqual Linspace Log Log10 Log1p Log2 LogSigmoid LogSoftmax Logaddexp Logaddexp2
    Logdet LogicalAnd LogicalNot LogicalOr LogicalXor Logspace Logsumexp Lstsq LuFactor Map MapCoordinates Matmul
    MatrixRank Max MaxPool Maximum Mean Median Meshgrid Min Minimum Mod Moments Moveaxis MultiHot Multiply NanToNum
    Nanargmax Nanargmin Nancumprod Nancumsum Nanmax Nanmean Nanmedian Nanmin Nanpercentile Nanprod Nanquantile
    Nanstd Nansum Nanvar Ndim Negative Nextafter Nonzero Norm Normalize NotEqual OneHot OnesLike Outer PSNR Pad
    PadImages Percentile PerspectiveTransform Pinv Polar Power Prod Ptp Qr Quantile RFFT RGBToGrayscale RGBToHSV
    RMSNorm Rad2deg Ravel Real Rearrange Reciprocal Relu Relu6 Repeat Reshape Resize RightShift Roll Rot90 Round
    Rsqrt SSIM STFT SVD SaturateCast ScaleAndTranslate Scan Scatter ScatterUpdate SearchSorted SegmentReduction
    Select Selu SeparableConv Sigmoid Sign Signbit Silu Sin Sinc Sinh Size Slice SliceUpdate Slogdet SobelEdges
    SoftShrink Softmax Softplus Softsign Solve SolveTriangular Sort SpaceToDepth SparseCategoricalCrossentropy
    SparsePlus SparseSigmoid Sparsemax Split Sqrt Square Squareplus Squeeze Stack Std StopGradient Subtract Sum
    Swapaxes Switch Take TakeAlongAxis Tan Tanh TanhShrink Tensordot Threshold Tile TopK Trace Transpose Trapezoid
    Tril Triu TrueDivide Trunc Unfold Unique UnravelIndex Unstack Vander Var Vdot VectorizedMap View ViewAsComplex
    ViewAsReal Vsplit Vstack Where WhileLoop ZerosLike
"""
OF_KERAS = frozenset(CLASSES.split())
IN_EVERY_LAYER = "trainable"  # is in what get_config() of a layer returns, and never in that of an operation
OF_TWO_TENSORS = frozenset(("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Dot"))


def is_operation(entry: Mapping[str, Any], calls: Iterable[Call], by_keras_3: bool) -> bool:
    """Whether an entry of a model's list of layers is an operation.

    Args:
        entry: of the configuration.
        calls: of this entry.
        by_keras_3: whether its calls are written as Keras 3 writes them; only then it can be one of ``keras.ops``.

    Raises:
        MalformedError: it can be read as a layer and as an operation, which compute different things.
    """
    name, module = entry["class_name"], entry.get("module")
    if name in OF_TENSORFLOW and registered_name(entry) is None:
        return True
    if "module" in entry:
        return isinstance(module, str) and any(module == place or module.startswith(f"{place}.") for place in MODULES)
    if not by_keras_3 or name not in OF_KERAS:
        return False
    config = entry.get("config")
    has_keys_of_layer = isinstance(config, dict) and IN_EVERY_LAYER in config
    if name in OF_TWO_TENSORS and any(takes_one_list(call) != has_keys_of_layer for call in calls):
        keys, arguments = ("a layer", "an operation") if has_keys_of_layer else ("an operation", "a layer")
        raise MalformedError(
            f"'{name}' '{entry.get('name')}' has the settings of {keys} and the arguments of {arguments}"
        )
    return not has_keys_of_layer


def takes_one_list(call: Call) -> bool:
    """Whether a call has the arguments of a merging layer: one list of tensors."""
    return len(call.arguments) == 1 and isinstance(call.arguments[0], tuple)
