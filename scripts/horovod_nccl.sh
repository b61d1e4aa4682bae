# What a build of Horovod needs to see of NCCL: the header and the library of the version in uv.lock, in a folder that
# stays, since the built Horovod finds the library there. Source it from the checkout, before `scripts/uv sync`:
#
#     source scripts/horovod_nccl.sh [FOLDER]      # FOLDER: .nccl
#
# PyPI's package has libnccl.so.2 alone, and a compiler's linker looks for libnccl.so. uv builds Horovod apart from the
# environment, so that it does not see the package there.
# shellcheck shell=bash

# TensorFlow and NCCL in uv.lock are of CUDA 12, and CUDA 13 compiles for no V100. PyPI has no nvcc of CUDA 12.
nvcc_version=$("${HOROVOD_CUDA_HOME:+$HOROVOD_CUDA_HOME/bin/}nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
case $nvcc_version in
12.*) ;;
*)
    echo "Horovod with NCCL needs nvcc of CUDA 12, and found ${nvcc_version:-none}: put it first on PATH, or set" \
        "HOROVOD_CUDA_HOME (Debian 13: apt-get install nvidia-cuda-toolkit, of the section non-free)" >&2
    return 2
    ;;
esac
nccl_folder=$(realpath -m "${1:-.nccl}")
nccl_version=$(grep -A1 '^name = "nvidia-nccl-cu12"' uv.lock | sed -n 's/^version = "\(.*\)"/\1/p')
if [ ! -e "$nccl_folder/nvidia/nccl/include/nccl.h" ]; then
    scripts/uv pip install -q --no-deps --target "$nccl_folder" "nvidia-nccl-cu12==$nccl_version" || return 1
fi
ln -sf libnccl.so.2 "$nccl_folder/nvidia/nccl/lib/libnccl.so"
export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED
export HOROVOD_NCCL_INCLUDE=$nccl_folder/nvidia/nccl/include HOROVOD_NCCL_LIB=$nccl_folder/nvidia/nccl/lib
echo "NCCL $nccl_version: $HOROVOD_NCCL_LIB/libnccl.so; CUDA $nvcc_version"
