# Sourced by the launch scripts and by tests/run: says where everything is, installs nothing.
#
# Sets  LOCKSTEP_ROOT      the checkout
#       LOCKSTEP_CACHE     where wheels and downloads are kept, outside the checkout
#       LOCKSTEP_VENV      the virtual environment of the pinned wheels, keyed by their lists
#       LOCKSTEP_WHEELS    the lists that this machine needs
#       LOCKSTEP_TORCH     the LibTorch folder: an existing one named by CMAKE_PREFIX_PATH, else the wheel's
#       LOCKSTEP_CUDA      the CUDA toolkit: an installed one of version 12.8 or newer, else the wheel's
#       LOCKSTEP_PRESET    of CMakePresets.json (default release)
#       LOCKSTEP_BUILD     the build folder (default build/$LOCKSTEP_PRESET)

LOCKSTEP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOCKSTEP_CACHE=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lockstep}
LOCKSTEP_PRESET=${LOCKSTEP_PRESET:-release}
LOCKSTEP_BUILD=${LOCKSTEP_BUILD:-$LOCKSTEP_ROOT/build/$LOCKSTEP_PRESET}

lockstep_toolkit() {  # prints the first installed CUDA toolkit that is new enough
  local home version
  for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$(dirname "$(dirname "$(command -v nvcc || echo /none/none/none)")")" /usr/local/cuda; do
    [ -x "$home/bin/nvcc" ] && [ -e "$home/include/cuda_runtime.h" ] || continue
    version=$("$home/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    # shellcheck disable=SC2086
    set -- $version
    if [ "$1" -gt 12 ] || { [ "$1" -eq 12 ] && [ "$2" -ge 8 ]; }; then
      echo "$home"
      return 0
    fi
  done
  return 1
}

lockstep_existing_torch() {  # prints the LibTorch that CMAKE_PREFIX_PATH names, if any
  local prefix
  for prefix in $(echo "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  '); do
    for prefix in "$prefix" "${prefix%/share/cmake*}"; do
      [ -e "$prefix/include/torch/csrc/api/include/torch/torch.h" ] && { echo "$prefix"; return 0; }
    done
  done
  return 1
}

LOCKSTEP_WHEELS="$LOCKSTEP_ROOT/launch/wheels/build-tools.txt"
LOCKSTEP_TORCH=$(lockstep_existing_torch) || LOCKSTEP_WHEELS="$LOCKSTEP_WHEELS $LOCKSTEP_ROOT/launch/wheels/torch.txt"
LOCKSTEP_CUDA=$(lockstep_toolkit) || LOCKSTEP_WHEELS="$LOCKSTEP_WHEELS $LOCKSTEP_ROOT/launch/wheels/cuda-compiler.txt"
# shellcheck disable=SC2086
LOCKSTEP_VENV=$LOCKSTEP_CACHE/wheels-$(cat $LOCKSTEP_WHEELS | grep -v '^#' | sha256sum | cut -c1-12)

lockstep_site_packages() {  # prints the wheels' folder (it exists once launch/setup has run)
  local site
  for site in "$LOCKSTEP_VENV"/lib/python3*/site-packages; do
    [ -d "$site" ] && { echo "$site"; return 0; }
  done
  return 1
}

LOCKSTEP_SITE=$(lockstep_site_packages) || LOCKSTEP_SITE=
if [ -n "$LOCKSTEP_SITE" ]; then
  [ -n "$LOCKSTEP_TORCH" ] || LOCKSTEP_TORCH=$LOCKSTEP_SITE/torch
  [ -n "$LOCKSTEP_CUDA" ] || LOCKSTEP_CUDA=$LOCKSTEP_SITE/nvidia/cu13
fi
