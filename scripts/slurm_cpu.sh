#!/bin/bash
# One batch job on a Slurm node without GPUs: simulation, training and report, in folders of the checkout.
#
#     scripts/uv sync                                         # once, on a node with a compiler
#     sbatch -A ACCOUNT -p PARTITION scripts/slurm_cpu.sh configs/quickstart.yaml --set training.epochs=40
#
# Each task is a rank. A job that is cut off by its time limit goes on from its last checkpoint when it is submitted
# again. Ranks on several nodes need Horovod with MPI, as in scripts/slurm.sh.
#
#SBATCH --job-name=namsa
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --output=namsa-%j.log

set -euo pipefail

RANKS=${SLURM_NTASKS:-1}
[ "$#" -gt 0 ] || { echo "error: give a configuration, such as configs/quickstart.yaml" >&2; exit 2; }
[ "${SLURM_JOB_NUM_NODES:-1}" -eq 1 ] || { echo "error: this script is for one node: see scripts/slurm.sh" >&2; exit 2; }
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} PATH=$PWD/.venv/bin:$PATH

exec horovodrun -np "$RANKS" --gloo namsa-train "$@" --set training.checkpoints.every_seconds=300
