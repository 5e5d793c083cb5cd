// Far pointers: a million records in 16 MiB of local memory.
//
//     build/bin/examples/pointers [FAR-TIER]
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"

namespace {

struct account {
  std::uint64_t number = 0;
  std::int64_t balance = 0;
  char owner[48] = {};
};

}  // namespace

int main(int count_of_arguments, char** arguments) try {
  far::runtime farheap(
      {.local_bytes = std::size_t{16} << 20, .far = count_of_arguments > 1 ? arguments[1] : "memory:"});

  // A far::unique_ptr is 8 bytes, in ordinary memory; the account itself is in the far heap.
  std::vector<far::unique_ptr<account>> accounts;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    accounts.push_back(far::make_unique<account>(farheap, account{.number = i, .balance = 100}));
  }

  // Inside a scope, references to far objects are ordinary references.
  for (std::size_t i = 0; i + 1 < accounts.size(); i += 2) {
    const far::scope here(farheap);
    account& from = accounts[i].deref_mut(here);
    account& to = accounts[i + 1].deref_mut(here);
    from.balance -= 30;
    to.balance += 30;
  }

  // Without one, objects are copied out and in.
  account first = accounts[0].read();
  first.balance += 5;
  accounts[0].write(first);

  // Several owners; an alias may name a part.
  far::shared_ptr<account> shared = far::make_shared<account>(farheap, account{.number = 1'000'000, .balance = 7});
  const far::shared_ptr<std::int64_t> balance(shared, &account::balance);
  shared.reset();

  std::int64_t sum = balance.read();
  for (const far::unique_ptr<account>& entry : accounts) {
    const far::scope here(farheap);
    sum += entry.deref(here).balance;
  }
  const far::runtime_statistics now = farheap.statistics();
  std::printf("sum %lld; %llu MiB are local, %llu MiB far\n", static_cast<long long>(sum),
              static_cast<unsigned long long>(now.local_bytes >> 20),
              static_cast<unsigned long long>(now.far_bytes >> 20));
  return sum == 100'000'012 ? 0 : 1;
} catch (const std::exception& refused) {
  // The far tier, or permission for userfaultfd, is missing: the message says what to do.
  std::fprintf(stderr, "%s\n", refused.what());
  return 1;
}
