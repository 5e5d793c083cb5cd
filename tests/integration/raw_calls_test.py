"""Programs that pass by the C library's names, interrupt them, or end a thread or process: the output is the native
one."""

import platform
import unittest

import support


class Outside(unittest.TestCase):
    def compare(self, program, budget_bytes, mode, least_far_bytes=0):
        native = support.run(program)
        self.assertGreaterEqual(native.code, 0, native)
        outcome = support.run_far(program, budget_bytes, far="memory:", mode=mode)
        self.assertEqual((outcome.code, outcome.out), (native.code, native.out), f"{mode}: {outcome}")
        self.assertIsNotNone(outcome.stats, f"{mode}: no statistics; {outcome}")
        self.assertIn("farheap: peak local", outcome.err, f"{mode}: {outcome}")
        self.assertGreaterEqual(outcome.stats["peak_far_bytes"], least_far_bytes, f"{mode}: {outcome}")
        return outcome

    def both(self, program, budget_bytes, least_far_bytes=0, modes=support.MODES):
        for mode in modes:
            with self.subTest(mode=mode):
                self.compare(program, budget_bytes, mode, least_far_bytes)


class Signals(Outside):
    def test_handlers_that_jump_out_of_memory_calls(self):
        self.both([support.PROGRAMS / "jumper", "jump"], 64 * support.MIB, 128 * support.MIB)

    def test_handlers_that_make_memory_calls(self):
        self.both([support.PROGRAMS / "jumper", "work"], 64 * support.MIB, 128 * support.MIB)

    def test_handlers_that_ask_for_their_signal_stack(self):
        self.both([support.PROGRAMS / "alternate"], 24 * support.MIB)

    def test_handlers_that_need_their_signal_stack(self):
        self.both([support.PROGRAMS / "signal_stacks"], 24 * support.MIB, 16 * support.MIB)

    def test_threads_that_change_an_action_at_the_same_time(self):
        self.both([support.PROGRAMS / "outsider", "actions", "name"], 24 * support.MIB, modes=support.of_today(support.MODES))


class RawCalls(Outside):
    """Each by the C library's syscall(), which says nothing of what it does; in one mode each day, and below in the other."""

    WAY = "name"
    MODES = support.of_today(support.MODES)

    def outsider(self, part):
        self.both([support.PROGRAMS / "outsider", part, self.WAY], 24 * support.MIB, 16 * support.MIB, self.MODES)

    def test_dropped_memory_reads_as_zeros(self):
        self.outsider("drop")

    def test_memory_that_is_unmapped_mapped_over_moved_and_protected(self):
        self.outsider("rearrange")

    def test_memory_that_is_mapped(self):
        self.outsider("map")

    def test_children_see_every_byte(self):
        self.outsider("children")

    def test_a_child_with_its_parents_descriptors_is_refused(self):
        program = [support.PROGRAMS / "outsider", "descriptors", self.WAY]
        for mode in self.MODES:
            with self.subTest(mode=mode):
                outcome = self.compare(program, 24 * support.MIB, mode, 16 * support.MIB)
                self.assertIn("its parent's descriptors cannot be served", outcome.err)
                self.assertIn("clone -22", outcome.err)

    def test_descriptors_that_are_closed_and_replaced(self):
        self.outsider("close")

    def test_transfers_within_the_process(self):
        self.outsider("within")

    def test_the_end_of_the_process(self):
        self.outsider("exit")

    def test_handlers_blocked_signals_and_a_child_of_fork(self):
        self.outsider("signals")


class RawInstructions(RawCalls):
    """The same by instructions of the program's own, which no library sees."""

    WAY = "asm"
    MODES = support.of_today(support.MODES, 1)  # the other mode

    def setUp(self):
        support.need(platform.machine() == "x86_64", "system calls are handed back on x86-64 only")

    def test_waits_with_a_mask(self):
        self.both([support.PROGRAMS / "waiter", "masks"], 24 * support.MIB)

    def test_children_that_use_the_stack_of_their_parent(self):
        for part in ("vfork", "handler", "clone"):
            with self.subTest(part):
                self.both([support.PROGRAMS / "waiter", part], 24 * support.MIB)

    def test_children_on_small_stacks(self):
        self.both([support.PROGRAMS / "waiter", "small"], 24 * support.MIB)

    def test_an_exec_on_a_small_stack(self):
        self.both([support.PROGRAMS / "waiter", "exec"], 24 * support.MIB)

    def test_registers_are_kept(self):
        self.both([support.PROGRAMS / "outsider", "registers", self.WAY], 24 * support.MIB)


class Ends(Outside):
    def test_vfork_children_that_end_leave_the_report_to_their_parent(self):
        self.both([support.PROGRAMS / "outsider", "vfork", "name"], 24 * support.MIB, 16 * support.MIB)

    def test_a_main_thread_that_ends_before_the_others(self):
        self.both([support.PROGRAMS / "outsider", "main-thread", "name"], 24 * support.MIB)

    def test_threads_on_stacks_in_far_memory(self):
        self.both([support.PROGRAMS / "outsider", "stacks", "name"], 24 * support.MIB, 16 * support.MIB)

    def test_robust_mutexes_in_far_memory(self):
        self.both([support.PROGRAMS / "outsider", "robust", "name"], 24 * support.MIB, 16 * support.MIB)

    def test_robust_lists_of_nonsense(self):
        self.both([support.PROGRAMS / "outsider", "nonsense", "name"], 24 * support.MIB)

    def test_rights_that_change_while_a_child_settles(self):
        self.both([support.PROGRAMS / "outsider", "rights", "name"], 24 * support.MIB)


if __name__ == "__main__":
    support.main()
