"""launch/run with the real program: what a user of the README types."""
import os
import unittest

from lockstep_run import BINARY, ROOT, LockstepTest, Run, environment, flags, main, run

LAUNCH = ROOT / "launch/run"


class Launch(LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("train", rows=40)

    def launch(self, *words, **changes):
        clean = {name: None for name in os.environ if name.startswith(("OMPI_", "OMP_"))}
        clean.update(OMPI_ALLOW_RUN_AS_ROOT=None, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=None, OMP_NUM_THREADS=None,
                     OMPI_MCA_rmaps_base_oversubscribe=None, OMPI_MCA_hwloc_base_binding_policy=None,
                     LOCKSTEP_BUILD=str(BINARY.parents[1]))
        return run([LAUNCH, *words], environment(**{**clean, **changes}))

    def train_words(self, name, **changes):
        return ["train", *flags(self.settings(**{"data": self.data, "run": self.folder / name, "global_batch": 8, "steps": 3,
                                                 **changes}))]

    def test_it_trains_without_a_variable_of_open_mpi_even_as_root(self):
        result = self.launch("-n", 2, *self.train_words("run"))
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.errors, "")
        self.assertIn("global batch 8 = 2 ranks", result.output)
        self.assertEqual(Run(self.folder / "run").column("step"), [1, 2, 3])

    @unittest.skipUnless(os.geteuid() == 0, "mpirun minds root alone")
    def test_mpirun_itself_does_refuse_root(self):
        # So the test above would see launch/run forget the variables.
        refused = run(["mpirun", "-np", 1, "true"],
                      environment(OMPI_ALLOW_RUN_AS_ROOT=None, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=None))
        self.assertNotEqual(refused.code, 0, str(refused))

    def test_dry_run_prints_the_command_and_starts_nothing(self):
        result = self.launch("-n", 2, "--dry-run", *self.train_words("run"))
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("mpirun", result.output)
        self.assertIn(str(BINARY), result.output)
        self.assertIn("--global-batch=8", result.output)
        self.assertFalse((self.folder / "run").exists())
        printed = run(["bash", "-c", result.output], environment(OMPI_MCA_rmaps_base_oversubscribe=None))
        self.assertEqual(printed.code, 0, f"what it prints does not run: {printed}")
        self.assertEqual(Run(self.folder / "run").column("step"), [1, 2, 3])

    def test_exit_codes_of_the_program_come_through_and_its_line_stays_alone(self):
        for code, changes in ((64, {"global_batch": 0}), (66, {"data": self.folder / "nowhere"})):
            result = self.launch("-n", 2, *self.train_words("run", **changes))
            self.assert_refused(result, code)

    def test_other_commands_run_as_one_process(self):
        result = self.launch("data", "inspect", self.data)
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("40 in 1 shard", result.output)


if __name__ == "__main__":
    main()
