"""A run whose every step overflows ends with a line that says where, and its last checkpoint is as it was."""
from faulty import RANKS, FaultTest
from lockstep_run import BINARY, Run, digests, main, on_ranks, run


class SkipLimit(FaultTest):
    STUCK = {"init_scale": 1e30, "min_scale": 1e30, "skip_limit": 5}

    def test_a_scale_that_stays_too_high_stops_the_run(self):
        result = run(on_ranks(RANKS, *self.command(steps=100, **self.STUCK)))
        self.assert_refused(result, 70, "step 5", "5 steps in a row", "--skip-limit", "head.bias", "1e+30",
                            "there is no checkpoint", at_start=False)
        stopped = Run(self.folder / "run")
        self.assertEqual(stopped.column("skipped_steps"), [1, 2, 3, 4, 5])
        self.assertEqual(stopped.checkpoints(), [])
        self.assertFalse((stopped.folder / "COMPLETE").exists())

    def test_weights_that_blow_up_stop_the_run_and_leave_its_checkpoint(self):
        good = {"optimizer": "sgd", "skip_limit": 7, "checkpoint_steps": 1, "keep_checkpoints": 0, "lr": 1e6}
        result = run(on_ranks(RANKS, *self.command(steps=200, **good)))
        self.assertEqual(result.code, 70, str(result))
        stopped = Run(self.folder / "run")
        step = stopped.column("step")[-1]
        self.assert_refused(result, 70, f"step {step}:", "7 steps in a row", "first in ", stopped.checkpoints()[-1],
                            at_start=False)
        self.assertEqual(stopped.column("skipped_steps")[-1], 7)
        self.assertTrue(stopped.checkpoints())
        for checkpoint in stopped.checkpoints():
            verified = run([BINARY, "checkpoint", "verify", checkpoint])
            self.assertEqual(verified.code, 0, str(verified))

    def test_a_resumed_run_counts_its_skips_on_and_keeps_the_checkpoint(self):
        settled = {**self.STUCK, "skip_limit": 9}
        trained = self.train(RANKS, "run", data=self.data, global_batch=8, steps=6, **settled)
        before = digests(trained.folder / "checkpoints")
        result = run(on_ranks(RANKS, *self.command(steps=100, **settled)))
        self.assert_refused(result, 70, "step 9", "9 steps in a row", trained.checkpoints()[-1], at_start=False)
        self.assertEqual(before, digests(trained.folder / "checkpoints"))

    def test_skips_at_the_start_are_normal(self):
        trained = self.train(RANKS, "run", data=self.data, global_batch=8, steps=30, init_scale=2**30, skip_limit=25)
        skipped = trained.column("skipped_steps")
        self.assertGreater(skipped[-1], 3)
        self.assertEqual(skipped[-1], skipped[-10], "the last steps were skipped too")
        self.assertTrue((trained.folder / "COMPLETE").exists())


if __name__ == "__main__":
    main()
