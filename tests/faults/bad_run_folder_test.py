"""Run folders and checkpoints that do not fit: refused with both values, and nothing in them is touched."""
import shutil

from faulty import RANKS, FaultTest
from lockstep_run import flags, main, on_ranks, run


class BadRunFolder(FaultTest):
    def trained(self, name="run", **changes):
        return self.train(RANKS, name, **{"data": self.data, "global_batch": 8, "steps": 2, **changes})

    def test_another_configuration_is_shown_setting_by_setting(self):
        trained = self.trained()
        self.refuse(78, [trained.folder, "--lr was 0.001 and is now 0.5", "--seed was 1 and is now 2"], lr=0.5, seed=2, steps=4)

    def test_an_attempt_that_took_no_step_binds_nobody(self):
        folder = self.folder / "run"
        self.train(RANKS, "run", data=self.data, global_batch=8, steps=2)
        shutil.rmtree(folder / "checkpoints")
        self.refuse(78, [folder, "--lr was 0.001 and is now 0.5"], lr=0.5, steps=4)   # its reports are worth something
        (folder / "metrics.jsonl").write_text("")
        (folder / "COMPLETE").unlink()
        again = self.train(RANKS, "run", data=self.data, global_batch=8, steps=4, lr=0.5)
        self.assertEqual(again.column("step"), [1, 2, 3, 4])

    def test_another_data_set_is_refused_with_both_fingerprints(self):
        self.trained()
        self.refuse(78, ["--data", "24 rows", "40 rows"], data=self.pack("other", rows=24), steps=4)

    def test_a_run_that_must_not_be_resumed_is_refused(self):
        self.trained()
        self.refuse(78, [self.folder / "run", "--resume"], resume="never", steps=4)

    def test_a_checkpoint_of_another_model_is_refused_with_both_settings(self):
        trained = self.trained("mlp")
        checkpoint = trained.checkpoints()[-1]
        self.refuse(78, [checkpoint, "--model was mlp and is now lenet"], resume=checkpoint, model="lenet", steps=4)
        self.refuse(78, [checkpoint, "--hidden was 16 and is now 17"], resume=checkpoint, hidden=17, steps=4)
        self.refuse(78, [checkpoint, "--lr was 0.001 and is now 0.5"], resume=checkpoint, lr=0.5, steps=4)

    def test_a_checkpoint_of_rows_of_another_shape_is_refused_with_both(self):
        checkpoint = self.trained("mlp").checkpoints()[-1]
        wide = self.pack("wide", rows=40, side=14)
        self.refuse(78, [checkpoint, "[16, 196]", "[16, 144]", "another shape"], resume=checkpoint, data=wide, steps=4)

    def test_a_checkpoint_of_another_optimizer_is_refused(self):
        checkpoint = self.trained("sgd", optimizer="sgd").checkpoints()[-1]
        self.refuse(78, [checkpoint, "--optimizer was sgd and is now adamw"], resume=checkpoint, steps=4)

    def test_a_checkpoint_that_is_not_there_is_named(self):
        self.refuse(66, [self.folder / "nowhere"], resume=self.folder / "nowhere")

    def test_a_damaged_checkpoint_that_was_asked_for_is_named_by_file(self):
        checkpoint = self.trained("first").checkpoints()[-1]
        shard = sorted(checkpoint.glob("shard-*"))[1]
        with open(shard, "r+b") as file:
            file.seek(shard.stat().st_size - 9)
            file.write(b"\xff\x01")
        self.refuse(65, [shard.name], resume=checkpoint, steps=4)

    def test_automatic_resume_passes_a_damaged_checkpoint_over_with_a_warning(self):
        whole = self.trained("whole", steps=6)
        broken = self.trained(steps=4, checkpoint_steps=2, schedule_steps=6)
        newest = broken.checkpoints()[-1]
        next(newest.glob("shard-*")).write_bytes(b"")
        result = run(on_ranks(RANKS, *self.command(steps=6, schedule_steps=6)))
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("checkpoint of step 4 is passed over", result.errors)
        self.assertEqual(whole.shards(), broken.shards())
        self.assertEqual(whole.reports(), broken.reports())

    def test_a_folder_that_cannot_be_made_is_named(self):
        file = self.folder / "file"
        file.write_text("mine\n")
        for folder in (file, file / "run"):
            self.refuse(73, [file], run=folder)
        self.refuse(73, ["/proc/nothing"], run="/proc/nothing/run")

    def test_lockstep_eval_names_what_it_lacks(self):
        trained = self.trained()
        empty = self.folder / "empty"
        empty.mkdir()
        other = self.pack("wider", rows=8, side=16)
        for code, changes, words in ((66, {"run": self.folder / "nowhere"}, ["nowhere"]),
                                     (66, {"run": empty}, [empty]),
                                     (66, {"data": empty}, [empty, "*.h5"]),
                                     (66, {"checkpoint": empty}, [empty]),
                                     (78, {"data": other}, ["[16, 256]", "[16, 144]", "data of another shape"])):
            settings = {"run": trained.folder, "data": self.data, "device": "cpu", **changes}
            self.assert_refused(run(on_ranks(RANKS, "eval", *flags(settings))), code, *words)

    def test_a_run_without_checkpoints_cannot_be_evaluated(self):
        trained = self.trained()
        shutil.rmtree(trained.folder / "checkpoints")
        settings = {"run": trained.folder, "data": self.data, "device": "cpu"}
        self.assert_refused(run(on_ranks(RANKS, "eval", *flags(settings))), 66, trained.folder, "no checkpoint")


if __name__ == "__main__":
    main()
