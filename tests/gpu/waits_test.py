"""That the counter of waits can fail: waits that are planted in every step are found, by name. Needs no GPU."""
import os
import unittest

import waits
import lockstep_run as lr

FUNCTIONS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMalloc", "cudaFree",
             "cudaMallocHost", "cudaHostAlloc")


class Waits(lr.LockstepTest):
    def found(self, *plant):
        few, many = (waits.counted([os.environ["LOCKSTEP_PLANT_WAITS"], steps, *plant], self.folder / f"{steps}")
                     for steps in (3, 5))
        return waits.of_steps(few, many)

    def test_a_run_without_waits_in_its_steps_passes(self):
        self.assertEqual(self.found("none"), [])

    def test_a_wait_in_every_step_is_found_by_name(self):
        for name in FUNCTIONS:
            self.assertEqual(self.found(name), [name])

    def test_a_wait_of_another_thread_is_found_and_the_loaders_is_allowed(self):
        self.assertEqual(self.found("cudaDeviceSynchronize", "thread"), ["cudaDeviceSynchronize@thread"])
        self.assertEqual(self.found("cudaEventSynchronize", "thread"), [])

    def test_a_counter_that_is_not_loaded_is_no_success(self):
        library = os.environ.pop("LOCKSTEP_WAITS_LIBRARY")
        self.addCleanup(os.environ.__setitem__, "LOCKSTEP_WAITS_LIBRARY", library)
        with self.assertRaisesRegex(AssertionError, "names no file"):
            self.found("none")


if __name__ == "__main__":
    unittest.main(verbosity=2)
