"""Every sample counts once, on any number of ranks: in training, in evaluation during it, and in lockstep eval."""
from lockstep_run import LockstepTest, flags, main, on_ranks, run


class Data(LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("train", rows=40)

    def test_evaluation_of_21_and_of_7_rows_is_the_same_to_the_bit_on_1_2_3_and_4_ranks(self):
        for rows in (21, 7):
            eval_data = self.pack(f"eval{rows}", rows=rows, seed=8)
            found = []
            for ranks in (1, 2, 3, 4):
                # A learning rate of zero keeps the weights alike, so only the evaluation is compared.
                trained = self.train(ranks, f"rows{rows}np{ranks}", data=self.data, eval_data=eval_data, eval_batch=4,
                                     global_batch=8, steps=1, lr=0)
                found.append(trained.evaluations())
            self.assertEqual(len(found[0]), 1)
            self.assertEqual(found[0][0]["samples"], rows)
            for other in found[1:]:
                self.assertEqual(found[0], other)

    def test_3_rows_are_trained_on_and_evaluated_by_4_ranks(self):
        data = self.pack("three", rows=3, classes=4)
        for precision in ("fp32", "fp16"):
            alone = self.train(1, f"alone-{precision}", data=data, eval_data=data, global_batch=8, epochs=4, precision=precision)
            four = self.train(4, f"four-{precision}", data=data, eval_data=data, global_batch=8, epochs=4, precision=precision)
            self.assertEqual(four.column("samples"), [3, 6, 9, 12])
            self.assertEqual(alone.column("samples"), four.column("samples"))
            self.assert_close(alone.column("loss"), four.column("loss"), 1e-5 if precision == "fp32" else 5e-3)
            self.assertEqual(four.evaluations()[0]["samples"], 3)
            self.assertTrue((four.folder / "COMPLETE").exists())

    def test_145_rows_in_batches_of_16_are_10_steps_an_epoch_on_1_and_3_ranks(self):
        data = self.pack("rows145", rows=145)
        alone = self.train(1, "np1", data=data, global_batch=16, epochs=2, precision="fp32")
        three = self.train(3, "np3", data=data, global_batch=16, epochs=2, precision="fp32")
        self.assertEqual(alone.column("step"), list(range(1, 21)))
        self.assertEqual(alone.column("samples")[8:11], [144, 145, 161])
        self.assertEqual(alone.column("samples"), three.column("samples"))
        self.assert_close(alone.column("loss"), three.column("loss"), 1e-5)

    def test_lockstep_eval_finds_what_training_found_on_1_and_2_ranks(self):
        eval_data = self.pack("eval23", rows=23, seed=9)
        for model in ({"model": "lenet"}, {"model": "mlp"}):
            trained = self.train(2, model["model"], data=self.data, eval_data=eval_data, global_batch=8, steps=10, eval_batch=5,
                                 **model)
            line = trained.evaluations()[-1]
            words = f"eval loss {line['eval_loss']:.6f}, accuracy {100 * line['eval_accuracy']:.2f} % over 23 rows"
            for ranks in (1, 2):
                result = run(on_ranks(ranks, "eval", *flags({"run": trained.folder, "data": eval_data, "batch": 5,
                                                            "device": "cpu"})))
                self.assertEqual(result.code, 0, str(result))
                self.assertEqual(result.errors, "")
                self.assertIn(words, result.output)
                self.assertIn(str(trained.checkpoints()[-1]), result.output)


if __name__ == "__main__":
    main()
