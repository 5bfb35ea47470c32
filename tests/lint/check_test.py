"""Plants one violation of each rule in a small tree and expects check.py to name it: check_test.py"""
import pathlib
import subprocess
import sys
import tempfile

TABLE = """
| level | room | holds | may use | Torch |
|---|---|---|---|---|
| 0 | `base` | - | - | no |
| 1 | `mpi` | - | base | no |
| 2 | `ops` | - | base | yes |
| 3 | `app` | - | all above | - |
"""
CLEAN = {
    "ARCHITECTURE.md": TABLE,
    "src/base/CMakeLists.txt": "lockstep_room(base LINKS Threads::Threads)\n",
    "src/base/a.hpp": "#pragma once\n",
    "src/mpi/CMakeLists.txt": "lockstep_room(mpi USES base LINKS MPI::MPI_CXX)\n",
    "src/mpi/a.cpp": '#include <mpi.h>\n#include "base/a.hpp"\n#include "mpi/a.hpp"\n',
    "src/ops/CMakeLists.txt": "lockstep_room(ops TORCH USES base)\n",
    "src/ops/a.cpp": '#include <torch/torch.h>\n#include "base/a.hpp"\n',
    "src/app/CMakeLists.txt": "add_executable(lockstep)\n",
    "src/app/main.cpp": '#include "ops/a.hpp"\nint main() {\n  return 0;\n}\n',
    "tests/run": "#!/bin/sh\n",
}
PLANTED = [
    ("rooms", "src/base/a.hpp", '#include "mpi/a.hpp"\n', "base may not use mpi"),
    ("rooms", "src/mpi/b.cpp", '#include "ops/a.hpp"\n', "mpi may not use ops"),
    ("rooms", "src/ops/b.cpp", "#include <mpi.h>\n", "<mpi.h> belongs to room mpi"),
    ("rooms", "src/app/b.cpp", "#  include <H5public.h>\n", "belongs to room hdf5"),
    ("rooms", "src/mpi/b.hpp", "#include <ATen/core/Tensor.h>\n", "mpi is a room without Torch"),
    ("rooms", "src/ops/CMakeLists.txt", "lockstep_room(ops TORCH USES base mpi)\n", "USES base mpi, the table says base"),
    ("rooms", "src/ops/CMakeLists.txt", "lockstep_room(ops USES base)\n", "TORCH differs"),
    ("rooms", "src/extra/a.cpp", "\n", "is no row"),
    ("rooms", "ARCHITECTURE.md", TABLE + "| 4 | `late` | - | never | no |\n", "is no row above it"),
    ("length", "src/ops/long.cpp", "\n" * 401, "401 lines"),
    ("length", "tests/long_test.cpp", "\n" * 401, "401 lines"),
    ("length", "src/ops/function.cpp", "int f() {\n" + "  ;\n" * 59 + "}\n", "a function of 61 lines"),
]


def run(check, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        for name in ("tests", "perf", "launch", "slurm", "cmake"):
            (pathlib.Path(folder) / name).mkdir(exist_ok=True)
        program = pathlib.Path(__file__).with_name("check.py")
        done = subprocess.run([sys.executable, program, folder, check], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


failures = 0
for check in ("rooms", "length"):
    code, words = run(check, CLEAN)
    if code != 0:
        failures += 1
        print(f"a clean tree fails {check}: {words}")
for check, name, content, expected in PLANTED:
    code, words = run(check, {**CLEAN, name: content})
    if code == 0 or expected not in words:
        failures += 1
        print(f"{name} should give '{expected}', gave {code}: {words}")
print(f"{len(PLANTED) + 2 - failures} of {len(PLANTED) + 2} as expected")
sys.exit(1 if failures else 0)
