#!/bin/bash
# One batch job from crystals to the report, on Slurm nodes with GPUs and a local disk.
#
#     source scripts/horovod_nccl.sh                     # once, with mpicxx and nvcc on PATH, and then
#     scripts/uv sync --no-group cpu --extra train --extra gpu
#     scripts/environment.sh pack environment.tar.zst    # once, and after every change
#     sbatch -A ACCOUNT -p PARTITION scripts/slurm.sh    # from the checkout
#     CONFIG=configs/paper.yaml sbatch -A ACCOUNT -p PARTITION -N 32 scripts/slurm.sh --set seed=1
#
# Each GPU simulates onto its node's disk for SIM_SECONDS, then all of them train on what lies there, and the results
# go home to RUN. Submitted again with the same RUN, it goes on from the last checkpoint; with the same KEEP, also with
# the samples, on any number of ranks. Arguments (--set key.path=value) go to simulation and training.
#
#SBATCH --job-name=namsa
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --output=namsa-%j.log

set -euo pipefail

CONFIG=${CONFIG:-configs/summit.yaml}
RUN=${RUN:-runs/$(basename "$CONFIG" .yaml)} # home of config, metrics, checkpoints, report: on the shared file system
KEEP=${KEEP:-}                               # home of the samples, on the shared file system; or none
MANIFEST=${MANIFEST:-}                       # a folder that `namsa dataset --manifest-only` has written; or none
SIM_SECONDS=${SIM_SECONDS:-1800}
RANKS_PER_NODE=${RANKS_PER_NODE:-${SLURM_NTASKS_PER_NODE:?outside of Slurm, set RANKS_PER_NODE}} # a rank a GPU
NODES=${NODES:-${SLURM_JOB_NUM_NODES:?outside of Slurm, set NODES}}
MPI=${MPI:-pmix} # `srun --mpi=list` says what there is
ENVIRONMENT=${ENVIRONMENT:-environment.tar.zst} # unpacked onto each node's disk
PYTHON=${PYTHON:-} # or, instead of it, a Python that all nodes see
ENGINE=${ENGINE:-horovod} # or jax, which needs neither MPI nor Horovod
PREFLIGHT=${PREFLIGHT---gpu} # what the preflight demands; empty: no GPU
RANKS=$((NODES * RANKS_PER_NODE))
case $ENGINE in
    horovod) ;;
    jax) MPI=none && export KERAS_BACKEND=jax ;;
    *) echo "error: ENGINE is $ENGINE: set it to horovod or jax" >&2 && exit 2 ;;
esac
CORES=$((${SLURM_CPUS_ON_NODE:-$(nproc)} / RANKS_PER_NODE))

# A simulation uses the one GPU that it sees. A training rank sees all of its node, as NCCL goes over NVLink only
# between GPUs that a process may open.
ranks=(srun --nodes="$NODES" --ntasks="$RANKS" --ntasks-per-node="$RANKS_PER_NODE" --cpus-per-task="$CORES"
    --cpu-bind=cores --kill-on-bad-exit=1 --mpi="$MPI")
own_gpu=("${ranks[@]}" --gpus-per-task=1)
all_gpus=("${ranks[@]}" --gpus-per-node="$RANKS_PER_NODE" --gpu-bind=none)

each_node=(srun --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 --cpus-per-task=$((RANKS_PER_NODE * CORES))
    --kill-on-bad-exit=1 --mpi=none)
one=(srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=$((RANKS_PER_NODE * CORES)) --mpi=none)

# Samples and Python, in each node; results, in the first. Not every site empties its local
# disks: what this script names, it removes.
if [ -z "${BB:-}" ]; then
    # A name that nobody else on the node can have taken before.
    BB=${TMPDIR:-/tmp}/namsa-${SLURM_JOB_ID:-$$}-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
    trap '"${each_node[@]}" rm -rf "$BB" "$BB-run" "$BB-env"' EXIT
fi

source scripts/phases.sh
