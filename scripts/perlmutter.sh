#!/bin/bash
# scripts/slurm.sh on the GPU nodes of Perlmutter (NERSC): four A100 a node, Slingshot, JAX processes with NCCL.
#
#     PYTHON=ENV/bin/python CONFIG=configs/paper.yaml sbatch -A ACCOUNT -N 32 scripts/perlmutter.sh --set seed=1
#
# This has not been run there: tests/scripts/test_batch.py runs it with a stand-in for srun. docs/cluster.md says how to
# make the environment, or the container. Settings are those of scripts/slurm.sh.
#
# Nodes have no disk: samples lie in memory, at /tmp. Simulate no more than fits there, or set KEEP.
#
#SBATCH --job-name=namsa
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --output=namsa-%j.log

set -euo pipefail

export ENGINE=${ENGINE:-jax}

# The library by which NCCL reaches Slingshot. Its version follows the site's.
if type module > /dev/null 2>&1; then
    module load "${NCCL_MODULE:-nccl}"
fi
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-hsn}
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1}
export FI_CXI_DISABLE_HOST_REGISTER=${FI_CXI_DISABLE_HOST_REGISTER:-1}
export FI_MR_CACHE_MONITOR=${FI_MR_CACHE_MONITOR:-userfaultfd}
export FI_CXI_DEFAULT_CQ_SIZE=${FI_CXI_DEFAULT_CQ_SIZE:-131072}

source scripts/slurm.sh
