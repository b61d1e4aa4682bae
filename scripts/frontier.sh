#!/bin/bash
# scripts/slurm.sh on Frontier (OLCF): eight GCDs of AMD a node, Slingshot, JAX processes with RCCL.
#
#     PYTHON=ENV/bin/python CONFIG=configs/paper.yaml sbatch -A ACCOUNT -N 32 scripts/frontier.sh --set seed=1
#
# This has not been run there: tests/scripts/test_batch.py runs it with a stand-in for srun. docs/cluster.md says how to
# make the environment, or the container. Settings are those of scripts/slurm.sh.
#
# CuPy's wheels are for CUDA: samples are simulated by the processors, and the preflight demands no GPU.
#
#SBATCH --job-name=namsa
#SBATCH --constraint=nvme
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --output=namsa-%j.log

set -euo pipefail

export ENGINE=${ENGINE:-jax}
export PREFLIGHT=${PREFLIGHT-}
export TMPDIR=${TMPDIR:-/mnt/bb/$USER} # the node's own disk

# ROCm's libraries. The library by which RCCL reaches Slingshot (aws-ofi-rccl) is built by oneself: OFI_RCCL is its folder.
if type module > /dev/null 2>&1; then
    module load "${ROCM_MODULE:-rocm}"
fi
export LD_LIBRARY_PATH=${OFI_RCCL:+$OFI_RCCL/lib:}${LD_LIBRARY_PATH:-}
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-hsn0}
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-3}
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1}
export FI_MR_CACHE_MONITOR=${FI_MR_CACHE_MONITOR:-kdreg2}
export FI_CXI_RX_MATCH_MODE=${FI_CXI_RX_MATCH_MODE:-hybrid}
export FI_CXI_DEFAULT_CQ_SIZE=${FI_CXI_DEFAULT_CQ_SIZE:-131072}

source scripts/slurm.sh
