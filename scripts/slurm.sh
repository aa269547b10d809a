#!/usr/bin/env bash
# Trains a recipe under SLURM, one task for each GPU that the job gets on a node; without GPUs one task a node. From the clone:
#   sbatch --nodes=2 --gpus-per-node=8 --cpus-per-gpu=8 --time=24:00:00 scripts/slurm.sh \
#     --config tasks/imagenet_vit.yaml --model.attention.name=dna
# Before the time limit the run saves at the next step, puts its job back into the queue and goes on there. The 300 seconds must
# cover one optimiser step and one checkpoint.
#SBATCH --job-name=dna
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

nodes=${SLURM_NNODES:?is not set: start this script with sbatch}
tasks=${SLURM_GPUS_ON_NODE:-1}
cpus=$((${SLURM_CPUS_ON_NODE:-$tasks} / tasks))

exec srun --nodes="$nodes" --ntasks-per-node="$tasks" --ntasks="$((nodes * tasks))" --cpus-per-task="$((cpus > 0 ? cpus : 1))" \
    dna fit "$@" --config configs/slurm.yaml --trainer.num_nodes="$nodes" --trainer.devices="$tasks" --resume
