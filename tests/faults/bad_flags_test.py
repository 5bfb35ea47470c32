"""Flags and settings that cannot be: refused with the flag and both values, before anything is written."""
from faulty import FaultTest
from lockstep_run import BINARY, flags, main, on_ranks, run


class BadFlags(FaultTest):
    def test_an_unknown_flag_gets_the_nearest_known_one(self):
        self.refuse(64, ["unknown flag --global-bach", "did you mean --global-batch?"], "--global-bach", "8")

    def test_an_unknown_model_gets_the_list(self):
        self.refuse(64, ["--model lenett", "lenet, mlp", "did you mean lenet?"], model="lenett")

    def test_a_model_that_does_not_take_the_rows_says_what_it_takes(self):
        self.refuse(64, ["--model lenet", "12 x 12", "[1, 8, 8]", "mlp"], model="lenet", data=self.pack("small", 8, side=8))

    def test_a_global_batch_of_0_is_refused(self):
        self.refuse(64, ["--global-batch", "'0'", ">= 1"], global_batch=0)

    def test_a_global_batch_that_micro_batches_do_not_divide_gets_the_nearest_that_fit(self):
        self.refuse(64, ["--global-batch 9", "--micro-batch 2", "2 ranks", "8 and 12 fit"], global_batch=9, micro_batch=2)

    def test_steps_and_epochs_together_are_refused_with_both(self):
        self.refuse(64, ["--steps 2", "--epochs 3"], epochs=3)

    def test_a_run_without_a_length_is_refused(self):
        self.refuse(64, ["--steps", "--epochs"], steps=None)

    def test_a_learning_rate_that_is_no_number_is_refused(self):
        for rate in ("nan", "inf", "-1", "fast"):
            self.refuse(64, ["--lr", f"'{rate}'"], lr=rate)

    def test_a_run_of_more_steps_than_there_can_be_is_refused(self):
        self.refuse(64, ["--steps 1000000000000", "1000000000"], steps=10**12)
        self.refuse(64, ["--epochs 9223372036854775807", "5 steps each"], steps=None, epochs=2**63 - 1)
        self.refuse(64, ["--schedule-steps 1000000000000"], schedule_steps=10**12)

    def test_a_model_too_large_for_memory_is_one_line_too(self):
        self.refuse(70, ["allocate memory"], hidden=10**12)

    def test_running_out_of_memory_on_a_rank_is_one_line_of_that_rank(self):
        result = run(on_ranks(1, *self.command(prefetch=10**12)))
        self.assert_refused(result, 71, "memory ran out", "rank 0 of 1")

    def test_shifting_what_is_no_image_is_refused_with_its_shape(self):
        csv = self.folder / "features.csv"
        csv.write_text("".join(f"{row},{2 * row},7,{row % 2}\n" for row in range(20)))
        packed = run([BINARY, "pack", "csv", *flags({"input": csv, "shape": 3, "output": self.folder / "features"})])
        self.assertEqual(packed.code, 0, str(packed))
        self.refuse(64, ["[3]"], data=self.folder / "features", augment_shift=2)

    def test_missing_flags_are_all_named(self):
        self.refuse(64, ["--model", "--global-batch"], model=None, global_batch=None)

    def test_a_bad_ini_file_is_named_with_its_line(self):
        ini = self.folder / "bad.ini"
        for words, expected in (("lr = 0.1\nglobal-bach = 8\n", ["bad.ini", "2", "global-bach", "global-batch"]),
                                ("seed = many\n", ["bad.ini", "seed", "many"]), ("what is this\n", ["bad.ini", "1"])):
            ini.write_text(words)
            self.refuse(64, expected, config=ini)

    def test_a_missing_ini_file_is_named(self):
        self.refuse(66, [self.folder / "nowhere.ini"], config=self.folder / "nowhere.ini")


if __name__ == "__main__":
    main()
