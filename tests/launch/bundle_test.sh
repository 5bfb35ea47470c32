#!/usr/bin/env bash
# bundle_test.sh ROOT BINARY: what launch/bundle makes of the built program, in an environment that holds nothing else.
set -uo pipefail
root=$1
binary=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$root/launch/environment.sh"
# LibTorch under a name that the program was not linked with: whatever is found there, environment.sh has led to.
ln -s "$(dirname "$LOCKSTEP_TORCH")" "$folder/wheels"
torch=$folder/wheels/$(basename "$LOCKSTEP_TORCH")

failures=0
check() {  # NAME CONDITION...
  local name=$1
  shift
  if "$@"; then echo "passed: $name"; else echo "FAILED: $name"; failures=$((failures + 1)); fi
}
has() { grep -qe "$2" <<<"$1"; }
lacks() { ! has "$@"; }
all_in() { while read -r library; do has "$1" "=> $library "; done; }
inside() {  # COMMAND with the bundle's variables alone, from a folder that is not ours
  (cd / && env -i HOME="$HOME" PATH=/usr/bin:/bin bash -c '. "$0/environment.sh" "$1" && shift && "$@"' "$bundle" "$torch" "$@")
}

bundle=$folder/bundle
output=$(LOCKSTEP_BUILD=$(dirname "$(dirname "$binary")") "$root/launch/bundle" "$bundle" 2>&1)
check "the bundle is made" [ $? = 0 ]
check "its size is told" has "$output" "bundle holds [0-9]"
check "it holds the program" cmp -s "$binary" "$bundle/bin/lockstep"
check "it holds HDF5" has "$(ls "$bundle/lib")" "^libhdf5"
check "the node's own libraries stay out of it" lacks "$(ls "$bundle/lib")" '^lib\(c\|mpi\|torch\|cuda\|stdc++\)[._-]'
check "PATH leads to its program" [ "$(inside bash -c 'command -v lockstep')" = "$bundle/bin/lockstep" ]
libraries=$(inside ldd "$bundle/bin/lockstep")
check "no library is missing" lacks "$libraries" "not found"
check "LibTorch comes from the folder that was named" has "$libraries" "=> $torch/lib/libtorch_cpu.so "
check "what it holds is what the program loads" all_in "$libraries" < <(find "$bundle/lib" -name '*.so*')
version=$(inside lockstep --version 2>&1)
check "the program starts" [ $? = 0 ]
check "and says its version" has "$version" '^lockstep [0-9]'
check "without a folder, how to call it is printed" [ "$("$root/launch/bundle" >/dev/null 2>&1; echo $?)" = 64 ]

echo "$failures failed"
[ "$failures" -eq 0 ]
