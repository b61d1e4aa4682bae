"""Kinds and phases of operations, found from the names that a profiler's trace gives them.

On a CPU a trace names TensorFlow's operations, as `model/conv1/convolution:Conv2D`: the path of a
node and its type. On a GPU it names kernels, mostly of cuDNN, and beside each the operation that
started it. A kernel's own name is asked first, because one operation may start kernels of several
kinds: a convolution, for example, also transposes.
"""

import re

from ..measure.kinds import (
    BACKWARD_PASS,
    BY_INPUT,
    BY_WEIGHTS,
    COORDINATION,
    EXCHANGE,
    FORWARD,
    FORWARD_PASS,
    INPUT,
    MEMORY,
    NORMALISATION,
    OPTIMIZER,
    OTHER,
    POINTWISE,
    POOLING,
    PRODUCT,
    RANDOM,
    REDUCTION,
    SUMS,
    SYNCHRONISATION,
    UPDATE,
)

_OPERATION = re.compile(r"(?:(?P<path>[\w.\-/]*):)?(?P<type>\w+)")
_BACKWARD = "gradient_tape/"  # begins the path of what a tape has differentiated
# Kernels that say themselves what they do, whatever operation has started them. The first that fits
# counts.
_KERNELS = (
    (r"nccl|all-?reduce|horovod.*reduce", REDUCTION),
    (
        r"memcpy|memset|nchwtonhwc|nhwctonchw|nhwc2nchw_?kernel|nchw2nhwc_?kernel|converttensor|transpose",
        MEMORY,
    ),
    (
        r"shuffleintensor|swapdimension|concat_(fixed|variable)|split_?(v_)?kernel|pad_?kernel|padinput",
        MEMORY,
    ),
    (r"bn_(fw|bw)|batch_?norm|bnorm|layernorm", NORMALISATION),
    (r"pooling_(fw|bw)|poolforward|poolbackward|avepool|maxpool", POOLING),
    (
        r"wgrad|bwd_filter|backward-?filter|bw-filter|backpropkernel|conv2dbackpropfilter",
        BY_WEIGHTS,
    ),
    (r"dgrad|bwd_data|backward-?input|bw-input|backpropinput", BY_INPUT),
    (
        r"fprop|implicit_(convolve|gemm|precomp)|convolution_fwd|conv2d_fwd|cudnn-conv|conv-forward",
        FORWARD,
    ),
)
# Scopes of the graph whose operations serve one purpose, whatever they compute.
_SCOPES = (
    (r"(^|/)(moments|batchnorm)/", NORMALISATION),  # of tf.nn.moments and tf.nn.batch_normalization
    (r"(^|/)(lars_adam|lamb|adam|loss_scale_optimizer)/", OPTIMIZER),
)
# Types of TensorFlow's operations, after the prefix of oneDNN's versions. The first that fits
# completely counts.
_TYPES = (
    (r"(Fused)?(DepthwiseConv|Conv)\d[dD]?(Native)?BackpropFilter\w*", BY_WEIGHTS),
    (r"(Fused)?(DepthwiseConv|Conv)\d[dD]?(Native)?BackpropInput\w*", BY_INPUT),
    (r"(Padded?)?(Fused)?(DepthwiseConv|Conv)\d[dD]\w*", FORWARD),
    (r"(Fused)?(Batch)?MatMul\w*|Einsum", PRODUCT),
    (r"FusedBatchNorm\w*|BatchNorm\w*|LayerNorm\w*|LRN\w*", NORMALISATION),
    (r"(Avg|Max)Pool\w*", POOLING),
    (
        r"(Sum|Mean|Max|Min|Prod|All|Any|L2Loss|BiasAddGrad|AddN|ArgM(ax|in)|Cumsum|EuclideanNorm)",
        SUMS,
    ),
    (r"(Stateless)?Random\w*|(Stateless)?TruncatedNormal\w*|Bernoulli", RANDOM),
    (r"HorovodAlltoall\w*", EXCHANGE),
    (r"Horovod\w*|Nccl\w*|Collective\w*", REDUCTION),
    (r"Iterator\w*|\w*Dataset\w*", INPUT),
    (
        r"(Cast|Transpose|Concat(V2)?|Slice|StridedSlice(Grad)?|Pad(V2)?|Tile|Split(V)?|Pack|Unpack|Gather\w*)",
        MEMORY,
    ),
    (
        r"(ReadVariableOp|AssignVariableOp|Identity(N)?|Copy\w*|Reshape|Squeeze|ExpandDims|Fill|(Zero|One)sLike)",
        MEMORY,
    ),
    (
        r"(Scatter\w*|TensorScatter\w*|BroadcastTo|Shape(N)?|Size|Rank|DynamicStitch|_(Host)?(Send|Recv)|ToTf)",
        MEMORY,
    ),
    (
        r"(FusedBinary\w*|Relu\w*|Elu\w*|Selu\w*|LeakyRelu\w*|Softplus\w*|Sigmoid\w*|Tanh\w*|Erf\w*|BiasAdd)",
        POINTWISE,
    ),
    (
        r"(Add(V2)?|Sub|Mul(NoNan)?|(Real|Trunc|Floor)?Div(NoNan)?|Mod|FloorMod|Maximum|Minimum|Pow|Neg|Abs)",
        POINTWISE,
    ),
    (
        r"(Square|Sqrt(Grad)?|Rsqrt(Grad)?|Reciprocal|Exp|Log(1p)?|Sign|Floor|Ceil|Round|SquaredDifference)",
        POINTWISE,
    ),
    (
        r"(Select(V2)?|Where|Greater(Equal)?|Less(Equal)?|(Not)?Equal|Logical\w+|Bitwise\w+|IsFinite|IsNan)",
        POINTWISE,
    ),
    (r"(ClipByValue|Assign(Add|Sub)VariableOp|Softmax\w*|Huber\w*)", POINTWISE),
    (r"Resource(Sparse)?Apply\w*", OPTIMIZER),
)
# Kernels whose name says little: they count only where the operation that started them is not
# known.
_VAGUE_KERNELS = (
    (r"winograd|fft2d|scudnn|cudnn.*conv|conv.*cudnn|convolve", FORWARD),
    (r"gemm|cublas|cutlass|matmul", PRODUCT),
    (r"(row|column|block|device)_?reduce|reduce_?kernel|input_reduce", SUMS),
    (r"philox|randomuniform|fillphilox", RANDOM),
    (r"(^|_)(cast|copy|concatenate|slice|wrapped_(transpose|copy|concatenate))", MEMORY),
    (r"relu|eigenmetakernel|elementwise|_gpu_dt_|loop_\w*fusion|fusion|bias", POINTWISE),
)
_ALGORITHMS = (
    (r"winograd", "Winograd"),
    (r"fft|cgemm|flip_filter", "FFT"),
    (r"implicit_precomp_gemm", "implicit GEMM, precomputed indices"),
    (
        r"implicit_(gemm|convolve)|[hs]\d*cudnn|cutlass.*(fprop|dgrad|wgrad)|algo_?1$|alg1|dgrad_engine",
        "implicit GEMM",
    ),
    (r"explicit_convolve|im2col|algo_gemm", "explicit GEMM"),
    (r"algo_?0|alg0|algo_?3|direct", "direct"),
)
_TENSOR_CORES = re.compile(r"[ish](884|1688|16816|16832)|tensorop|tensor\d+x\d+x\d+|gmma|imma|hmma")
# By the outermost scope that the step gives its operations.
_PHASE_SCOPES = {"forward": FORWARD_PASS, "update": UPDATE, "synchronise": SYNCHRONISATION}


def phase_of(name: str, category: str = "") -> str:
    """Returns the phase of a step, one of `PHASES`, to which a kernel or an operation belongs.

    The phases are those of Yoginath et al. (2019), table II. Reductions and exchanges are
    synchronisation; norms and moving averages are "other".

    Args:
        name: Name of a kernel, or `path:Type` of an operation.
        category: `path:Type` of the operation that started a kernel; or the kind of a reduction or
            a wait.
    """
    if category == INPUT:
        return INPUT
    if category in (REDUCTION, EXCHANGE, COORDINATION) or kind_of(name, category) in (
        REDUCTION,
        EXCHANGE,
    ):
        return SYNCHRONISATION
    path = (category or name).rpartition(":")[0]
    if _BACKWARD in f"{path}/":
        return BACKWARD_PASS
    return _PHASE_SCOPES.get(re.sub(r"_\d+$", "", path.partition("/")[0]), OTHER)


def kind_of(name: str, category: str = "") -> str:
    """Returns the kind, one of `KINDS`, of a kernel or an operation `path:Type`.

    The category of a kernel is the `path:Type` of the operation that started it; empty if it is not
    known.
    """
    operation = _OPERATION.fullmatch(category or name)
    path = (operation["path"] or "") if operation else ""
    if category or not operation or not path:
        for pattern, kind in _KERNELS:
            if re.search(pattern, name, re.IGNORECASE):
                return _purpose(kind, path)
    for pattern, kind in _SCOPES:
        if re.search(pattern, path):
            return kind
    if operation:
        type_name = re.sub(r"^_*(Mkl(Native)?)?_*", "", operation["type"])
        for pattern, kind in _TYPES:
            if re.fullmatch(pattern, type_name):
                return _purpose(kind, path)
    for pattern, kind in _VAGUE_KERNELS:
        if not path and re.search(pattern, name, re.IGNORECASE):
            return kind
    return OTHER


def _purpose(kind: str, path: str) -> str:
    """Returns the kind of a convolution from its place in the graph, if the trace tells it."""
    if kind == BY_INPUT and path and not path.startswith(_BACKWARD) and _BACKWARD not in path:
        return FORWARD  # of a transposed convolution
    if kind == FORWARD and _BACKWARD in path and "transpose" in path:
        return BY_INPUT
    return kind


def algorithm_of(name: str) -> str | None:
    """Returns the algorithm of a convolution's kernel, `None` if its name does not tell."""
    return next(
        (words for pattern, words in _ALGORITHMS if re.search(pattern, name, re.IGNORECASE)), None
    )


def uses_tensor_cores(name: str) -> bool:
    """Returns whether the name of a kernel says that it computes with tensor cores."""
    return bool(_TENSOR_CORES.search(name.lower()))
