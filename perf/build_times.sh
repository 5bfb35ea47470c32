#!/usr/bin/env bash
# How long a cold build, a rebuild after editing one file of an upper room, the test suite and the quickstart take here:
#   perf/build_times.sh FOLDER      clones this checkout's HEAD into FOLDER (which must not exist) and prints one JSON line
# The wheels and packages must be installed already (launch/setup); ccache is off. The machine should do nothing else.
set -euo pipefail
[ $# -eq 1 ] && [ ! -e "$1" ] || { sed -n '2,4p' "$0" >&2; exit 64; }
git clone -q "$(cd "$(dirname "$0")/.." && pwd)" "$1"
cd "$1"
unset LOCKSTEP_BUILD
export CCACHE_DISABLE=1

timed() {  # runs a command quietly, prints its seconds
  local start=$SECONDS
  "$@" >>times.log 2>&1 || { tail -40 times.log >&2; return 1; }
  echo $((SECONDS - start))
}

cold=$(timed ./launch/build)
echo "// edited to see what a rebuild takes" >>src/train/trainer.cpp
edit=$(timed ./launch/build lockstep)
tests=$(timed ./tests/run)
quickstart=$(timed ./launch/quickstart)
closing=$(grep -o '[0-9]*% tests passed.*' times.log | tail -1)
accuracy=$(sed -n 's/.*"eval_accuracy": *\([0-9.]*\).*/\1/p' runs/quickstart/metrics.jsonl | tail -1)
printf '{"benchmark": "build_times", "commit": "%s", "cores": %d, "cold_build_seconds": %d, "edit_one_file_seconds": %d, ' \
  "$(git rev-parse --short HEAD)" "$(nproc)" "$cold" "$edit"
printf '"tests_seconds": %d, "tests": "%s", "quickstart_seconds": %d, "quickstart_accuracy": %s}\n' \
  "$tests" "$closing" "$quickstart" "$accuracy"
