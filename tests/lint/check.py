"""Reads the room table of ARCHITECTURE.md and checks the source tree against it.

check.py ROOT rooms    includes, third-party headers, Torch, and each room's CMakeLists.txt
check.py ROOT length   files of at most 400 lines, functions of at most 60
check.py ROOT format   clang-format, of the version that the formatting was made with; exits 77 without it
Prints one line a finding; exits 1 when there is any.
"""
import pathlib
import re
import shutil
import subprocess
import sys

MOST_LINES = 400
MOST_FUNCTION_LINES = 60
FORMAT_VERSION = "14"   # other versions break lines elsewhere
OWN_ROOM = [(r"mpi\.h", "mpi"), (r"nccl\.h", "nccl"), (r"(hdf5|H5\w*)\.h", "hdf5"), (r"cudnn\w*\.h", "cuda")]
TORCH = r"(torch|ATen|c10)/"
CODE = {".cpp", ".hpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".sbatch", ""}


def read_table(root):
    """Rows of the table in its order: room -> (rooms it may use, whether Torch is allowed or None)."""
    rows = {}
    for line in (root / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 5 or not re.fullmatch(r"\d+", cells[0]):
            continue
        room = cells[1].strip("`")
        uses = set(rows) if cells[3] == "all above" else set(cells[3].replace("-", "").split())
        rows[room] = (uses, {"yes": True, "no": False}.get(cells[4]))
        for unknown in uses - set(rows):
            raise SystemExit(f"ARCHITECTURE.md: {room} may use {unknown}, which is no row above it")
    if not rows:
        raise SystemExit("ARCHITECTURE.md: no room table found")
    return rows


def files_in(folder, suffixes):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in suffixes)


def check_includes(root, table):
    for folder in sorted(path for path in (root / "src").iterdir() if path.is_dir()):
        room = folder.name
        if room not in table:
            yield f"src/{room}: is no row of ARCHITECTURE.md's room table"
            continue
        allowed, torch = table[room]
        for path in files_in(folder, CODE):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                place = f"{path.relative_to(root)}:{number}"
                found = re.match(r'\s*#\s*include\s*(?:"(\w+)/|<([^>]+)>)', line)
                if not found:
                    continue
                used, system = found.groups()
                if used and used != room and used not in allowed:
                    yield f"{place}: {room} may not use {used}"
                for pattern, owner in OWN_ROOM:
                    if system and re.fullmatch(pattern, system) and room != owner:
                        yield f"{place}: <{system}> belongs to room {owner}"
                if system and re.match(TORCH, system) and torch is False:
                    yield f"{place}: {room} is a room without Torch"


def check_cmake(root, table):
    for room, (allowed, torch) in table.items():
        path = root / "src" / room / "CMakeLists.txt"
        if not path.exists():
            yield f"src/{room}: row of the room table without a CMakeLists.txt"
            continue
        call = re.search(r"lockstep_room\(\s*(\w+)([^)]*)\)", path.read_text())
        if not call:
            continue   # the program itself
        words = call.group(2).split()
        uses = set()
        if "USES" in words:
            uses = set(words[words.index("USES") + 1:]) - {"TORCH"}
        if "LINKS" in words:
            uses -= set(words[words.index("LINKS"):])
        if call.group(1) != room or uses != allowed:
            yield f"src/{room}/CMakeLists.txt: USES {' '.join(sorted(uses))}, the table says {' '.join(sorted(allowed))}"
        if ("TORCH" in words) != bool(torch):
            yield f"src/{room}/CMakeLists.txt: TORCH differs from the table"


def check_length(root):
    for folder in ("src", "tests", "perf", "launch", "slurm", "cmake"):
        for path in files_in(root / folder, CODE | SCRIPTS):
            lines = path.read_text(errors="replace").splitlines()
            name = path.relative_to(root)
            if len(lines) > MOST_LINES:
                yield f"{name}: {len(lines)} lines, at most {MOST_LINES}"
            if folder == "src" and path.suffix in CODE:
                yield from check_functions(name, lines)


def check_functions(name, lines):
    """Functions at namespace level begin and end in the first column, as clang-format leaves them."""
    start = None
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_].*\{$", line) and not re.match(r"(namespace|struct|class|enum|union|extern)\b", line):
            start = number
        elif line.startswith("}") and start:
            if number - start + 1 > MOST_FUNCTION_LINES:
                yield f"{name}:{start}: a function of {number - start + 1} lines, at most {MOST_FUNCTION_LINES}"
            start = None


def check_format(root):
    program = shutil.which("clang-format")
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout if program else ""
    if not re.search(rf"version {FORMAT_VERSION}\.", version):
        print(f"no clang-format {FORMAT_VERSION} here")
        sys.exit(77)
    files = [path for folder in ("src", "tests", "perf") for path in files_in(root / folder, CODE)]
    for path in files:
        formatted = subprocess.run([program, path], capture_output=True, text=True, check=True).stdout
        if formatted != path.read_text():
            yield f"{path.relative_to(root)}: run clang-format -i on it"


def main():
    root = pathlib.Path(sys.argv[1])
    check = sys.argv[2]
    if check == "rooms":
        table = read_table(root)
        findings = [*check_includes(root, table), *check_cmake(root, table)]
    else:
        findings = list({"length": check_length, "format": check_format}[check](root))
    print("\n".join(findings) if findings else f"{check}: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
