#!/usr/bin/env bash
# run_test.sh ROOT: launch/run with a stand-in for the program, in an environment of its own.
set -uo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin"
cat >"$folder/bin/lockstep" <<'END'
#!/usr/bin/env bash
case $1 in
  code) exit "$2" ;;
  kill) kill -SEGV $$ ;;
  echo) shift; echo "$@" ;;
  read) cat ;;
  variables) env ;;
  wait) trap 'exit 75' USR1; touch "$2.$OMPI_COMM_WORLD_RANK"; for _ in {1..200}; do sleep 0.1; done ;;
esac
END
chmod +x "$folder/bin/lockstep"

failures=0
check() {  # NAME CONDITION...
  local name=$1
  shift
  if "$@"; then echo "passed: $name"; else echo "FAILED: $name"; failures=$((failures + 1)); fi
}
has() { grep -qe "$2" <<<"$1"; }
lacks() { ! has "$@"; }
clean() { env -i HOME="$HOME" PATH="$PATH" LOCKSTEP_BUILD="$folder" "$@"; }
run() { clean "$root/launch/run" "$@" 2>&1; }
code_of() { "$@" >/dev/null 2>&1; echo $?; }

check "exit codes of ranks arrive" [ "$(code_of run -n 2 code 65)" = 65 ]
check "success is 0" [ "$(code_of run -n 2 code 0)" = 0 ]
check "mpirun's own pages are silenced" lacks "$(run -n 2 code 65)" "mpirun detected"
check "a rank that dies of a signal is named" has "$(run -n 2 kill)" "signal 11 (SEGV)"
check "arguments stay whole" has "$(run -n 1 -- echo 'a  b' '*')" '^a  b \*$'
check "standard input reaches rank 0" [ "$(echo hello | run -n 1 read)" = hello ]
check "more ranks than cores are allowed" [ "$(code_of run -n $(($(nproc) + 1)) code 0)" = 0 ]
check "a word for -n is refused" [ "$(code_of run -n two train)" = 64 ]
check "no command is refused" [ "$(code_of run)" = 64 ]
check "a missing program is named" has "$(LOCKSTEP_BUILD=/nowhere "$root/launch/run" train 2>&1)" "launch/build"

line=$(run --dry-run train --model lenet)
check "ranks are not bound to single cores" has "$line" "--bind-to none"
check "OMP_NUM_THREADS is set" has "$line" "^OMP_NUM_THREADS=[1-9]"
check "what is set is left alone" lacks "$(clean OMP_NUM_THREADS=7 "$root/launch/run" --dry-run train)" "OMP_NUM_THREADS="
check "a binding of one's own is left alone" \
  lacks "$(clean OMPI_MCA_hwloc_base_binding_policy=core "$root/launch/run" --dry-run train)" "--bind-to"
check "one rank a visible GPU" has "$(clean CUDA_VISIBLE_DEVICES=0,2,5 "$root/launch/run" --dry-run train)" " -n 3 "
check "CPU ranks when asked for" \
  lacks "$(clean CUDA_VISIBLE_DEVICES=0,2,5 "$root/launch/run" --dry-run train --device cpu)" " -n 3 "
check "other commands take one rank" has "$(clean CUDA_VISIBLE_DEVICES=0,2,5 "$root/launch/run" --dry-run pack csv)" " -n 1 "
check "hosts need a number of ranks" [ "$(code_of run --host a,b train)" = 64 ]
check "settings of the run reach other nodes" \
  has "$(clean NCCL_DEBUG=INFO "$root/launch/run" --dry-run train)" "-x NCCL_DEBUG"
mkdir "$folder/broken"
printf '#!/bin/sh\nexit 1\n' | tee "$folder/broken/lscpu" >"$folder/broken/nvidia-smi"
chmod +x "$folder"/broken/*
check "where the machine hides its processors and GPUs, ranks start all the same" \
  [ "$(code_of clean PATH="$folder/broken:$PATH" "$root/launch/run" -n 1 code 0)" = 0 ]
check "and two CPU ranks are the default" \
  has "$(clean PATH="$folder/broken:$PATH" "$root/launch/run" --dry-run train)" " -n [12] "
check "the ranks get the variables" has "$(run -n 1 variables)" "^OMP_NUM_THREADS="

env -i HOME="$HOME" PATH="$PATH" LOCKSTEP_BUILD="$folder" "$root/launch/run" -n 2 wait "$folder/started" &
pid=$!   # of launch/run itself: no function, which would be a shell between
for _ in {1..100}; do [ -e "$folder/started.0" ] && [ -e "$folder/started.1" ] && break; sleep 0.1; done
kill -USR1 "$pid"
wait "$pid"
check "a signal reaches the ranks, and their code comes back" [ $? = 75 ]

echo "$failures failed"
[ "$failures" -eq 0 ]
