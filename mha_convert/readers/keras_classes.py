"""Whose class a layer's entry in JSON names: Keras' own, or one that somebody wrote.

Keras 2.13 and later write the module that a class lives in (null for a class of the program itself, ``__main__``), and
the package that it was registered in, if it was. What holds no module (``.h5``, SavedModels, ``.keras`` files of Keras
2.12, and ``to_json()`` before 2.13) holds the name, and the package: a name that Keras does not have is somebody's own,
and nothing distinguishes an unregistered class of one's own from Keras' if both have one name.
"""

from collections.abc import Mapping
from typing import Any

from ..records.source import KERAS_MODULES

MAIN = "__main__"
KERAS_PACKAGES = ("keras", "Keras", "keras_hub", "keras_nlp")
# Of Keras 2 and 3, as far as they are written into configurations.
KERAS_CLASSES = """
    AbstractRNNCell Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D
    AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AddLoss AddMetric
    AdditiveAttention AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D AveragePooling2D
    AveragePooling3D BatchNormalization BatchNormalizationV1 BatchNormalizationV2 Bidirectional CategoryCrossing
    CategoryEncoding CenterCrop ClassMethod Concatenate ContrastLimitedAdaptiveHistogramEqualization Conv1D
    Conv1DTranspose Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D
    Convolution2D Convolution3D Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM CutMix Dense DenseFeatures
    DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Equalization FeatureSpace
    Flatten FlaxLayer Functional GRU GRUCell GRUCellV2 GRUV2 GaussianDropout GaussianNoise GlobalAveragePooling1D
    GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention GroupedQueryAttention HashedCrossing Hashing Identity InputLayer
    InstanceMethod InstanceProperty IntegerLookup JaxLayer LSTM LSTMCell LSTMCellV2 LSTMV2 Lambda Layer
    LayerNormalization LeakyReLU LocallyConnected1D LocallyConnected2D Masking MaxNumBoundingBoxes
    MaxPooling1D MaxPooling2D MaxPooling3D Maximum MelSpectrogram Merge Minimum MixUp Model ModuleWrapper
    MultiHeadAttention Multiply NoOpLayer Normalization PReLU PeepholeLSTMCell Permute Pipeline RMSNormalization RNN
    RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop
    RandomElasticTransform RandomErasing RandomFlip RandomFourierFeatures RandomGaussianBlur RandomGrayscale
    RandomHeight RandomHue RandomInvert RandomPerspective RandomPosterization RandomRotation RandomSaturation
    RandomSharpness RandomShear RandomTranslation RandomWidth RandomZoom ReLU RepeatVector Rescaling Reshape
    Resizing ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D
    SeparableConvolution2D SequenceFeatures Sequential SimpleRNN SimpleRNNCell SlicingOpLambda Softmax Solarization
    SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells StringLookup Subtract
    SyncBatchNormalization TFOpLambda TFSMLayer TensorFlowOpLayer TextVectorization ThresholdedReLU TimeDistributed
    TorchModuleWrapper UnitNormalization UpSampling1D UpSampling2D UpSampling3D Wrapper ZeroPadding1D
    ZeroPadding2D ZeroPadding3D
"""
KERAS_NAMES = frozenset(KERAS_CLASSES.split())


def registered_name(entry: Mapping[str, Any]) -> str | None:
    """``package>Class``; None for a class that is Keras' own or was not registered."""
    names = (entry.get("class_name"), entry.get("registered_name"))  # the former in Keras 2.12 and in legacy HDF5
    return next((name for name in names if isinstance(name, str) and ">" in name), None)


def module_of(entry: Mapping[str, Any]) -> str | None:
    """Where the class lives; None where the JSON does not say."""
    if "module" not in entry:
        return None
    module = entry["module"]
    return module if isinstance(module, str) and module else MAIN


def is_own(entry: Mapping[str, Any]) -> bool:
    """Whether the class is somebody's own, and not Keras' or KerasHub's, as far as the JSON says."""
    registered, module = registered_name(entry), module_of(entry)
    if registered is not None and registered.partition(">")[0] not in KERAS_PACKAGES:
        return True
    if module is not None:
        return module.partition(".")[0] not in KERAS_MODULES
    return registered is None and str(entry.get("class_name")) not in KERAS_NAMES
