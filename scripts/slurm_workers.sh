#!/bin/bash
# One run by many workers, one for each task of a Slurm job:
#
#   sbatch --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=4 scripts/slurm_workers.sh algorithm=fedgta dataset=physics
#
# data_dir, cache_dir and results_dir belong on a file system that all nodes share.
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# shellcheck disable=SC2016 # the variables are those of the task
exec srun --kill-on-bad-exit=1 bash -c \
  'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec fgl-bench "$@"' fgl-bench progress=false "$@"
