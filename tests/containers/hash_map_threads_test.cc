// far::hash_map under many fibers and threads at a time, on the real kernel. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include "tests/containers/elements.h"
#include "tests/containers/hash_map_stress.h"

namespace far {
namespace {

using hash_map_threads = test::containers_test;

TEST_F(hash_map_threads, readers_and_writers_see_whole_values) {
  stress::readers_and_writers_see_whole_values(*farheap_, {});
}
TEST_F(hash_map_threads, what_was_found_stays_until_the_scope_ends) {
  stress::what_was_found_stays_until_the_scope_ends(*farheap_, {});
}
TEST_F(hash_map_threads, grows_under_readers) {
  stress::grows_under_readers(*farheap_, {});
}
TEST_F(hash_map_threads, what_is_replaced_is_always_there) {
  stress::what_is_replaced_is_always_there(*farheap_, {});
}
TEST_F(hash_map_threads, copies_are_of_before_or_after_an_update) {
  stress::copies_are_of_before_or_after_an_update(*farheap_, {});
}
TEST_F(hash_map_threads, a_cache_keeps_its_limit_under_many) {
  stress::a_cache_keeps_its_limit_under_many(*farheap_, {});
}
TEST_F(hash_map_threads, entries_leave_under_many) {
  stress::entries_leave_under_many(*farheap_, {});
}
TEST_F(hash_map_threads, no_note_is_lost) {
  stress::no_note_is_lost({});
}
TEST_F(hash_map_threads, a_shared_lock_keeps_writers_apart) {
  stress::a_shared_lock_keeps_writers_apart(*farheap_, {});
}

}  // namespace
}  // namespace far
