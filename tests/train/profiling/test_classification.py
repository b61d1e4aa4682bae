"""Kinds of operations, told from names as they are in traces of CPUs and GPUs and in tables 1 and 2
of the paper.
"""

import pytest

from train.profiling.classification import algorithm_of, kind_of, uses_tensor_cores

TAPE = "gradient_tape/fcdensenet_1"
# Names as TensorFlow 2.18 and its oneDNN kernels give them on a CPU.
OPERATIONS = {
    "fcdensenet_1/first_1/BiasAdd:_MklNativeFusedConv2D": "convolution forward",
    "fcdensenet_1/td1_conv_1/convolution:_MklNativeConv2D": "convolution forward",
    "fcdensenet_1/tu1_conv_1/conv_transpose:_MklNativeConv2DBackpropInput": "convolution forward",
    f"{TAPE}/tu1_conv_1/conv_transpose/Conv2D:_MklNativeConv2D": "convolution by input",
    f"{TAPE}/up1_conv1_1/convolution/Conv2DBackpropInput:_MklNativeConv2DBackpropInput": "convolution by input",  # noqa: E501
    f"{TAPE}/last_1/convolution/Conv2DBackpropFilter:_MklNativeConv2DBackpropFilter": "convolution by weights",  # noqa: E501
    f"{TAPE}/first_1/Conv2DBackpropFilter:_MklNativeConv2DBackpropFilterWithBias": "convolution by weights",  # noqa: E501
    f"{TAPE}/tu1_conv_1/conv_transpose/Conv2DBackpropFilter:Conv2DBackpropFilter": "convolution by weights",  # noqa: E501
    "unet/conv/Conv3D:Conv3D": "convolution forward",
    f"{TAPE}/conv/Conv3DBackpropInputV2:Conv3DBackpropInputV2": "convolution by input",
    "dense/MatMul:_MklMatMul": "matrix product",
    "fcdensenet_1/down1_relu1_1/Relu:Relu": "pointwise",
    f"{TAPE}/up1_relu_1/ReluGrad:ReluGrad": "pointwise",
    "SelectV2_1:SelectV2": "pointwise",
    f"{TAPE}/first_1/BiasAdd/BiasAddGrad:BiasAddGrad": "sums and norms",
    "AddN_9:AddN": "sums and norms",
    "global_norm_1/L2Loss:L2Loss": "sums and norms",
    "fcdensenet_1/td1_norm_1/moments/SquaredDifference:SquaredDifference": "normalisation",
    f"{TAPE}/td1_norm_1/batchnorm/mul_1/Mul:Mul": "normalisation",
    "norm/FusedBatchNormV3:_FusedBatchNormEx": "normalisation",
    f"{TAPE}/td1_pool_1/AvgPoolGrad:_MklNativeAvgPoolGrad": "pooling",
    "d/stateless_dropout/stateless_random_uniform/StatelessRandomUniformV2:StatelessRandomUniformV2": "random",  # noqa: E501
    "lars_adam/truediv_38:RealDiv": "optimizer",
    "ResourceApplyAdam_3:ResourceApplyAdam": "optimizer",
    "fcdensenet_1/down1_1/concat:ConcatV2": "memory",
    "fcdensenet_1/first_1/Cast:Cast": "memory",
    f"{TAPE}/tu1_skip_1/Slice:Slice": "memory",
    "transpose_1:Transpose": "memory",
    "PartitionedCall/HorovodGroupedAllreduce:HorovodGroupedAllreduce": "reduction",
    "IteratorGetNext:IteratorGetNext": "input",
    "Timestamp:Timestamp": "other",
    # Laanait et al. (2019), table 1.
    "Conv2D_FWD": "convolution forward",
    "Conv2D_BackpropKernel": "convolution by weights",
    "Conv2D_BackpropInput": "convolution by input",
    "NCCL-allreduce": "reduction",
    "ReluGrad": "pointwise",
    "MEMCPYHtoD": "memory",
}
FIRST = "net/first/Conv2D:Conv2D"
GRADIENT = "gradient_tape/net/first/Conv2DBackpropFilter:Conv2DBackpropFilter"
# Kernels with the operation that started them, if the trace has it, by kind, algorithm, and whether
# on tensor cores. Calls of cuDNN are those of Laanait et al. (2019), table 2.
KERNELS = {
    ("convolution forward", "implicit GEMM", True): [
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", FIRST),
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3_warpsize2x2x1_g1_tensor16x8x16_execute_kernel_5x_cudnn",
    ],
    ("convolution by input", "implicit GEMM", True): [
        "volta_fp16_s884cudnn_fp16_128x128_ldg8_dgrad_f2f_exp_small_nhwc2nchw_tt_v1"
    ],
    ("convolution by weights", "implicit GEMM", True): [
        "volta_fp16_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1",
        "void "
        "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x128_16x4_nhwc_align4>",
    ],
    ("convolution forward", "implicit GEMM", False): [
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, true>(int, int)",
        "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM",
    ],
    ("convolution forward", "explicit GEMM", False): [
        ("void explicit_convolve_sgemm<float, int, 128, 5, 5, 3, 3, 3, 0, true>(int, int)", FIRST)
    ],
    ("convolution forward", "Winograd", False): [
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(params)",
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", FIRST),
    ],
    ("convolution by weights", "Winograd", False): [
        ("void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(params)", GRADIENT)
    ],
    ("convolution by weights", "FFT", False): [
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", GRADIENT)
    ],
    ("convolution by input", "implicit GEMM", False): [
        "void cudnn::cnn::dgrad2d_alg1_1<float, 0, 6, 6, 5, 4, 5, false, true>(int)",
        "CUDNN_CONVOLUTION_BWD_DATA_ALGO_1",
    ],
    ("convolution by weights", "direct", False): [
        "void cudnn::detail::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, true, 512>(int)"
    ],
    ("memory", None, False): [
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(params)", FIRST),
        ("void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(int)", FIRST),
        "Memset",
    ],
    ("normalisation", None, False): [
        "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(params)"
    ],
    ("pointwise", None, False): [
        ("Relu_GPU_DT_HALF_DT_HALF_kernel", "net/relu/Relu:Relu"),
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<scalar_max_op>, int>",
        "loop_add_fusion_3",
    ],
    ("sums and norms", None, False): [
        "void tensorflow::functor::RowReduceKernel<float*, cub::Sum>(float*)",
        "input_reduce_fusion",
    ],
    ("matrix product", None, True): [("volta_h884gemm_128x128_ldg8_nn", "dense/MatMul:MatMul")],
    ("reduction", None, False): [
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long)",
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
    ("convolution by weights", None, False): ["cudnn-conv-bw-filter.3"],
    ("convolution forward", None, False): ["cudnn-conv-bias-activation.1"],
    ("convolution forward", "implicit GEMM, precomputed indices", False): [
        "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM"
    ],
    ("convolution by weights", "implicit GEMM", False): ["CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1"],
    ("convolution forward", "FFT", False): ["CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING"],
    ("convolution by input", "Winograd", False): ["CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD"],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_kind(name):
    assert kind_of(name) == OPERATIONS[name]


@pytest.mark.parametrize(
    ("expected", "kernel"), [(key, kernel) for key in KERNELS for kernel in KERNELS[key]]
)
def test_a_kernel_on_a_gpu_has_a_kind_and_an_algorithm(expected, kernel):
    name, category = (kernel, "") if isinstance(kernel, str) else kernel
    assert (kind_of(name, category), algorithm_of(name), uses_tensor_cores(name)) == expected
