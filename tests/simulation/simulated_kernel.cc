#include "simulated_kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/local_memory.h"
#include "trace.h"

namespace far::simulation {
namespace {

// The content of memory where nothing should be read any more.
constexpr int rubbish = 0xee;

}  // namespace

simulated_kernel::simulated_kernel(scheduler& threads, random_source& random, std::uint64_t heap_pages)
    : threads_(threads), random_(random), pages_(heap_pages), heap_(platform::map_local(heap_pages * page_bytes)) {}

simulated_kernel::~simulated_kernel() {
  platform::unmap_local(heap_, pages_.size() * page_bytes);
}

void simulated_kernel::check(page_range range, const char* call) const {
  if (range.count == 0 || range.end() > pages_.size()) {
    fail("%s of %zu pages at %llu: not in the heap", call, range.count, static_cast<unsigned long long>(range.first));
  }
}

void simulated_kernel::note(const char* call, page_range range) {
  threads_.note(range.first * 64 + range.count);
  if (tracing()) {
    trace("%8llu %-10s %s %llu+%zu", static_cast<unsigned long long>(threads_.slices()),
          threads_.inside_thread() ? threads_.name_of(threads_.current()).c_str() : "-", call,
          static_cast<unsigned long long>(range.first), range.count);
  }
}

void simulated_kernel::become_child() {
  for (page_state& page : pages_) page.guarded = page.write_protected = page.locked = false;
  waiters_.clear();
  unread_.clear();
}

simulated_kernel::fault simulated_kernel::touch(page_id page, bool write) {
  page_state& touched = pages_[page];
  if (!touched.present) {
    if (touched.guarded) return fault::missing;
    std::memset(bytes(page), 0, page_bytes);
    touched.present = true;
    touched.write_protected = false;
  }
  return write && touched.write_protected ? fault::write_protected : fault::none;
}

void simulated_kernel::set_locked(page_range range, bool locked) {
  note(locked ? "lock" : "unlock", range);
  for (page_id id = range.first; id < range.end(); ++id) pages_[id].locked = locked;
}

bool simulated_kernel::drop_behind(page_id page) {
  page_state& dropped = pages_[page];
  if (!dropped.present || dropped.locked) return false;
  note("drop behind", {page, 1});
  std::memset(bytes(page), rubbish, page_bytes);
  dropped.present = false;
  dropped.dropped_behind = dropped.guarded;
  dropped.ever_dropped_behind = true;
  return true;
}

void simulated_kernel::report_and_wait(page_id page, bool write) {
  const thread_id self = threads_.current();
  note(write ? "write fault" : "read fault", {page, 1});
  unread_.push_back({page, write, self});
  waiters_.push_back({page, self});
  threads_.wake(handler_);
  threads_.block();
}

bool simulated_kernel::read_fault(reported_fault* next) {
  if (unread_.empty()) return false;
  *next = unread_.front();
  unread_.pop_front();
  return true;
}

// A fault that nobody has read yet goes away with its waiting thread.
void simulated_kernel::wake_waiters(page_range range) {
  const auto in_range = [range](page_id page) { return page >= range.first && page < range.end(); };
  std::erase_if(unread_, [&](const reported_fault& unread) { return in_range(unread.page); });
  std::erase_if(waiters_, [&](const waiter& sleeper) {
    if (!in_range(sleeper.page)) return false;
    threads_.wake(sleeper.thread);
    return true;
  });
}

std::uint64_t simulated_kernel::present_pages() const {
  const auto present =
      std::count_if(pages_.begin(), pages_.end(), [](const page_state& state) { return state.present; });
  return static_cast<std::uint64_t>(present + std::count(staged_.begin(), staged_.end(), true));
}

std::size_t simulated_kernel::install(page_range range, const std::byte* source, mapping how, int* error_code) {
  const scheduler::uninterrupted body;
  check(range, "install");
  threads_.switch_point();
  note(how == mapping::writable ? "install writable" : "install protected", range);
  std::size_t done = 0;
  for (; done < range.count; ++done) {
    page_state& filled = pages_[range.first + done];
    if (!filled.guarded) *error_code = ENOENT;
    if (filled.present) *error_code = EEXIST;
    if (!filled.guarded || filled.present) break;
    if (random_.chance(faults_.failing_installs)) {
      *error_code = ENOMEM;
      break;
    }
    std::memcpy(bytes(range.first + done), source + done * page_bytes, page_bytes);
    filled.present = true;
    filled.dropped_behind = false;
    filled.write_protected = how == mapping::write_protected;
    if (done + 1 < range.count) threads_.switch_point();
  }
  if (done > 0) wake_waiters({range.first, done});
  threads_.switch_point();
  return done;
}

std::size_t simulated_kernel::lift(page_range range, std::byte* staging) {
  const scheduler::uninterrupted body;
  check(range, "lift");
  threads_.switch_point();
  note("lift", range);
  const auto first_staged = static_cast<std::size_t>(staging - staging_) / page_bytes;
  std::size_t done = 0;
  for (; done < range.count; ++done) {
    page_state& lifted = pages_[range.first + done];
    if (!lifted.guarded)
      fail("lift of page %llu, which is not guarded", static_cast<unsigned long long>(range.first + done));
    if (lifted.dropped_behind) break;
    if (!lifted.present)
      fail("lift of page %llu, which is not mapped", static_cast<unsigned long long>(range.first + done));
    if (staged_[first_staged + done]) fail("lift into staging page %zu, which is in use", first_staged + done);
    if (lifted.locked || random_.chance(faults_.refused_lifts)) break;
    std::memcpy(staging + done * page_bytes, bytes(range.first + done), page_bytes);
    std::memset(bytes(range.first + done), rubbish, page_bytes);
    staged_[first_staged + done] = true;
    lifted.present = false;
    if (done + 1 < range.count) threads_.switch_point();
  }
  threads_.switch_point();
  return done;
}

std::size_t simulated_kernel::lift_unused(std::span<const page_range> ranges, std::byte* copies) {
  std::size_t lifted = 0;
  for (const page_range& part : ranges) {
    for (page_id page = part.first; page < part.end(); ++page, ++lifted) {
      std::memcpy(copies + lifted * page_bytes, bytes(page), page_bytes);
      const page_range dropped{page, 1};
      if (drop({&dropped, 1}) != 1) return lifted;
    }
  }
  return lifted;
}

const std::byte* simulated_kernel::unused_bytes(page_id page) {
  if (!pages_[page].present) fail("a look at page %llu, which is not mapped", static_cast<unsigned long long>(page));
  return bytes(page);
}

std::size_t simulated_kernel::relocate(page_range range, page_id to) {
  const scheduler::uninterrupted body;
  check(range, "relocate");
  check({to, range.count}, "relocate");
  threads_.switch_point();
  note("relocate", range);
  for (std::size_t done = 0; done < range.count; ++done) {
    page_state& from = pages_[range.first + done];
    page_state& target = pages_[to + done];
    if (!from.guarded || !target.guarded) fail("relocate between pages that are not guarded");
    if (from.dropped_behind) return done;
    if (!from.present || target.present) fail("relocate of a page that is not mapped, or onto one that is");
    std::memcpy(bytes(to + done), bytes(range.first + done), page_bytes);
    std::memset(bytes(range.first + done), rubbish, page_bytes);
    from.present = false;
    target.present = true;
    target.dropped_behind = false;
    target.write_protected = false;
    threads_.switch_point();
  }
  wake_waiters({to, range.count});
  return range.count;
}

std::size_t simulated_kernel::drop(std::span<const page_range> ranges) {
  const scheduler::uninterrupted body;
  threads_.switch_point();
  ++drops_;
  std::size_t done = 0;
  for (const page_range& range : ranges) {
    check(range, "drop");
    note("drop", range);
    for (page_id page = range.first; page < range.end(); ++page) {
      if (pages_[page].locked) return done;  // those before it are gone all the same, as with madvise(2)
      pages_[page].present = false;
      pages_[page].dropped_behind = false;
      threads_.switch_point();
    }
    ++done;
  }
  return done;
}

void simulated_kernel::allow_write(page_range range) {
  const scheduler::uninterrupted body;
  check(range, "allow_write");
  threads_.switch_point();
  if (meanwhile_) std::exchange(meanwhile_, nullptr)();
  note("allow_write", range);
  for (page_id page = range.first; page < range.end(); ++page) {
    if (!pages_[page].guarded)
      fail("allow_write of page %llu, which is not guarded", static_cast<unsigned long long>(page));
    pages_[page].write_protected = false;
    threads_.switch_point();
  }
  wake_waiters(range);
}

void simulated_kernel::wake(page_range range) {
  const scheduler::uninterrupted body;
  check(range, "wake");
  threads_.switch_point();
  note("wake", range);
  wake_waiters(range);
}

result<void> simulated_kernel::guard(page_range range) {
  const scheduler::uninterrupted body;
  check(range, "guard");
  threads_.switch_point();
  note("guard", range);
  // A pin asks for both, and one of them is granted.
  const bool asked_before = refused_to_populate_ >= range.first && refused_to_populate_ < range.end();
  if (asked_before) refused_to_populate_ = no_page;
  if (!asked_before && random_.chance(faults_.failing_guards)) {
    if (random_.chance(faults_.failing_unguards)) set_guarded({range.first, range.count / 2}, true, "guard");
    note_refusal(range);
    return error{"cannot guard a range: the simulated kernel refuses", ENOMEM};
  }
  set_guarded(range, true, "guard");
  threads_.switch_point();
  return {};
}

void simulated_kernel::set_guarded(page_range range, bool guarded, const char* call) {
  for (page_id page = range.first; page < range.end(); ++page) {
    page_state& changed = pages_[page];
    if (changed.guarded == guarded && !changed.refused) {
      fail("%s of page %llu, where that is so already", call, static_cast<unsigned long long>(page));
    }
    changed.guarded = guarded;
    changed.refused = false;
  }
}

void simulated_kernel::note_refusal(page_range range) {
  for (page_id page = range.first; page < range.end(); ++page) pages_[page].refused = true;
}

bool simulated_kernel::unguard(page_range range) {
  const scheduler::uninterrupted body;
  check(range, "unguard");
  threads_.switch_point();
  note("unguard", range);
  if (random_.chance(faults_.failing_unguards)) {
    note_refusal(range);
    return false;
  }
  set_guarded(range, false, "unguard");
  for (page_id page = range.first; page < range.end(); ++page) {
    pages_[page].dropped_behind = false;
    pages_[page].write_protected = false;
  }
  wake_waiters(range);
  threads_.switch_point();
  return true;
}

void simulated_kernel::query_filled(page_range range, std::span<bool> filled) {
  const scheduler::uninterrupted body;
  check(range, "query_filled");
  threads_.switch_point();
  for (std::size_t i = 0; i < range.count; ++i) filled[i] = pages_[range.first + i].present;
  threads_.switch_point();
}

int simulated_kernel::populate(page_range range, bool write) {
  const scheduler::uninterrupted body;
  check(range, "populate");
  threads_.switch_point();
  if (random_.chance(faults_.refused_populates)) {
    refused_to_populate_ = range.first;
    return EINVAL;
  }
  for (page_id page = range.first; page < range.end(); ++page) {
    if (touch(page, write) == fault::missing) {
      fail("populate of page %llu, which waits for the caller", static_cast<unsigned long long>(page));
    }
  }
  threads_.switch_point();
  return 0;
}

std::byte* simulated_kernel::map_staging(std::size_t pages) {
  staging_ = platform::map_local(pages * page_bytes);
  staged_.assign(pages, false);
  return staging_;
}

void simulated_kernel::unmap_staging(std::byte* staging, std::size_t pages) {
  platform::unmap_local(staging, pages * page_bytes);
}

result<void> simulated_kernel::renew_staging(std::byte* staging, std::size_t pages) {
  empty_staging(staging, pages);
  return {};
}

void simulated_kernel::empty_staging(std::byte* staging, std::size_t pages) {
  const scheduler::uninterrupted body;
  threads_.switch_point();
  const auto first = static_cast<std::size_t>(staging - staging_) / page_bytes;
  for (std::size_t i = first; i < first + pages; ++i) {
    if (staged_[i]) std::memset(staging_ + i * page_bytes, rubbish, page_bytes);
    staged_[i] = false;
  }
  threads_.switch_point();
}

}  // namespace far::simulation
