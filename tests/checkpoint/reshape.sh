#!/usr/bin/env bash
# reshape.sh MPIRUN CHECKPOINT_TEST: saves at 1, 2, 3 and 4 ranks, then loads all four at each of those sizes.
set -euo pipefail
LOCKSTEP_RESHAPE_FOLDER=$(mktemp -d)
export LOCKSTEP_RESHAPE_FOLDER
trap 'rm -rf "$LOCKSTEP_RESHAPE_FOLDER"' EXIT
for ranks in 1 2 3 4; do "$1" -np $ranks "$2" "[reshape_save]"; done
for ranks in 1 2 3 4; do "$1" -np $ranks "$2" "[reshape_load]"; done
