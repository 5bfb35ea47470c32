"""Ranks that were started the wrong way: one line says how to start them, before any file is touched."""
import subprocess
import unittest

from faulty import RANKS, FaultTest
from lockstep_run import BINARY, digests, environment, main, run


def gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


class BadLaunch(FaultTest):
    def refuse_start(self, start, variables, code, *words):
        result = run(start, variables)
        self.assert_refused(result, code, *words)
        self.assertEqual(digests(self.folder), {})

    def test_ranks_with_different_flags_are_named_with_both_values(self):
        parts = [["-np", 1, BINARY, *self.command(seed=seed)] for seed in (1, 2)]
        self.refuse_start(["mpirun", "--quiet", *parts[0], ":", *parts[1]], None, 78, "rank 0", "rank 1", "seed = 1", "seed = 2")

    def test_one_rank_with_an_unknown_flag_stops_all_and_is_named(self):
        parts = [["-np", 1, BINARY, *self.command(*more)] for more in ([], ["--sede", 2])]
        self.refuse_start(["mpirun", "--quiet", *parts[0], ":", *parts[1]], None, 64, "rank 1", "--sede", "--seed")

    def test_srun_without_pmi_is_refused_by_every_task(self):
        for rank in (0, 3):
            alone = environment(SLURM_STEP_NUM_TASKS="4", SLURM_PROCID=str(rank), SLURM_NTASKS="4")
            self.refuse_start([BINARY, *self.command()], alone, 78, "srun --mpi=pmix", "mpirun -np 4", "4 tasks", "1 rank")

    def test_one_process_in_a_batch_script_is_no_mistake(self):
        result = run([BINARY, *self.command()], environment(SLURM_NTASKS="4", SLURM_JOB_ID="7"))
        self.assertEqual(result.code, 0, str(result))

    def test_gpus_that_are_not_there_are_refused(self):
        hidden = environment(CUDA_VISIBLE_DEVICES="")
        self.refuse(69, ["rank 0", "no GPU", "CUDA_VISIBLE_DEVICES", "--device cpu"], variables=hidden, device="cuda")

    def test_a_mode_of_gpus_is_refused_where_auto_comes_to_cpu_ranks(self):
        hidden = environment(CUDA_VISIBLE_DEVICES="")
        self.refuse(64, ["--precision tf32", "CPU ranks", "fp32"], variables=hidden, device="auto", precision="tf32")

    @unittest.skipUnless(gpus() > 0, "no GPU here")
    def test_more_ranks_than_gpus_are_refused_with_both_numbers(self):
        alone = environment(CUDA_VISIBLE_DEVICES="0")
        self.refuse(69, [f"{RANKS} ranks", "1 "], variables=alone, device="cuda")

    def test_a_command_of_one_process_refuses_ranks(self):
        self.refuse_start(["mpirun", "--quiet", "-np", RANKS, BINARY, "data", "inspect", self.data], None, 64,
                          "one process", RANKS)


if __name__ == "__main__":
    main()
