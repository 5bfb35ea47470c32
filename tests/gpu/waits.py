"""Runs a command under count_waits, and compares what two runs of different length waited."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "end_to_end"))
import lockstep_run as lr  # noqa: E402


def counted(command, path):
    """Calls by function, "@thread" for those of other threads than the first."""
    library = os.environ.get("LOCKSTEP_WAITS_LIBRARY")
    if not library or not pathlib.Path(library).exists():
        raise AssertionError("LOCKSTEP_WAITS_LIBRARY names no file")
    result = lr.run(command, lr.environment(LD_PRELOAD=library, LOCKSTEP_WAITS_FILE=str(path)))
    if result.code != 0:
        raise AssertionError(str(result))
    counts = {name: int(count) for name, count in (line.split() for line in path.read_text().splitlines())}
    if counts["cudaMalloc"] == 0:
        raise AssertionError("the counter saw nothing")
    return counts


def of_steps(few, many):
    """The functions that a longer run calls more often. The loader's thread may wait: it must not refill a slot too early."""
    return [name for name in few if few[name] != many[name] and name != "cudaEventSynchronize@thread"]
