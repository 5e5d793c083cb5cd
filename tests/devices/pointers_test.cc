// Far pointers to the objects of devices on real servers. Needs permission for userfaultfd.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "far/device_ptr.h"
#include "tests/devices/built.h"
#include "tests/devices/device_server.h"
#include "tests/devices/pointers_stress.h"
#include "tests/support/no_threads.h"
#include "tests/support/real_pager.h"
#include "tests/support/scratch_folder.h"

namespace far {
namespace {

using namespace std::chrono_literals;
using testing_support::comes_true;
using testing_support::device_server;
using testing_support::is_whole;
using testing_support::put_record;
using testing_support::record;
using testing_support::record_at;
using testing_support::record_of;
using reason = device_error::reason;

std::unique_ptr<device_server> start(std::uint16_t port = 0) {
  return std::make_unique<device_server>(
      std::vector<std::string>{"--memory", "256M", "--grace", "120s", "--plugin", SORTED, "--plugin", TROUBLEMAKER},
      port);
}

template <typename Call>
reason reason_of(Call call) {
  try {
    call();
  } catch (const device_error& why) {
    return why.why();
  }
  ADD_FAILURE() << "the call has not failed";
  return reason::bad_tier;
}

// On a busy machine, a second may not be enough for a call.
template <typename Call>
bool patiently(Call call) {
  return comes_true([&] {
    try {
      call();
      return true;
    } catch (const device_error& why) {
      EXPECT_EQ(why.why(), reason::unreachable) << why.what();
      return false;
    }
  });
}

class DevicePointers : public heap::real_pager_test<> {
 protected:
  void SetUp() override {
    real_pager_test::SetUp();
    if (IsSkipped()) return;
    farheap = std::make_unique<runtime>(heap::small_runtime());
    server = start();
    made = std::make_unique<device>("tcp://" + server->host() + "?timeout=30s", "sorted");
  }

  std::unique_ptr<device_server> server;
  std::unique_ptr<device> made;
  std::unique_ptr<runtime> farheap;
};

TEST_F(DevicePointers, FetchChangeAndWriteBack) {
  constexpr std::uint64_t count = 2000;
  for (std::uint64_t i = 0; i < count; ++i) put_record(*made, i, 1);
  device_objects<record> all(*farheap, *made);
  for (const std::uint64_t round : {1u, 2u}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const scope here(*farheap);
      const std::uint64_t expected = i % 4 == 0 ? round : 1;
      ASSERT_TRUE(is_whole(all.at(i).deref(here), i));
      ASSERT_EQ(all.at(i).deref(here).count, expected);
      if (i % 4 == 0) ++all.at(i).deref_mut(here).count;
    }
    EXPECT_EQ(all.statistics().fetched, round * count);
    farheap->evict_all();
    ASSERT_TRUE(comes_true([&] { return all.statistics().copies == 0; })) << all.statistics().copies;
    EXPECT_EQ(all.statistics().written_back, round * count / 4);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(record_at(*made, i).count, i % 4 == 0 ? round + 1 : 1);
  }
  EXPECT_EQ(all.statistics().failed_write_backs, 0u);
}

TEST_F(DevicePointers, AreBuiltForWhatTheDeviceHasOrHasNot) {
  device_objects<record> all(*farheap, *made);
  const device_ptr<record> missing = all.at(7);
  EXPECT_EQ(reason_of([&] { static_cast<void>(missing.read()); }), reason::no_object);
  EXPECT_EQ(reason_of([&] { missing.erase(); }), reason::no_object);
  EXPECT_EQ(all.statistics().copies, 0u);
  missing.write(record_of(7, 3));
  EXPECT_EQ(reason_of([&] { static_cast<void>(made->read(7)); }), reason::no_object);
  EXPECT_EQ(missing.read().count, 3u);
  missing.erase();  // it was here only
  EXPECT_EQ(all.statistics().copies, 0u);
  missing.write(record_of(7, 4));
  all.flush();
  EXPECT_EQ(record_at(*made, 7).count, 4u);
  EXPECT_EQ(all.at(7).read().count, 4u);
  EXPECT_EQ(all.statistics().fetched, 0u);
  missing.erase();
  EXPECT_EQ(reason_of([&] { static_cast<void>(made->read(7)); }), reason::no_object);
  const std::uint64_t small = 5;
  made->write(8, std::as_bytes(std::span(&small, 1)));
  EXPECT_EQ(reason_of([&] { static_cast<void>(all.at(8).read()); }), reason::refused);
  EXPECT_TRUE(all.at(8) == all.at(8));
  EXPECT_FALSE(all.at(8) == all.at(7));
  EXPECT_FALSE(device_ptr<record>());
}

TEST_F(DevicePointers, DropWhatTheDeviceHasChanged) {
  put_record(*made, 1, 1);
  device_objects<record> all(*farheap, *made);
  all.at(1).write(record_of(1, 2));
  all.drop();
  EXPECT_EQ(record_at(*made, 1).count, 2u);
  put_record(*made, 1, 3);
  EXPECT_EQ(all.at(1).read().count, 3u);
}

TEST_F(DevicePointers, GiveTheirTagsBack) {
  put_record(*made, 1, 0);
  for (std::uint64_t i = 0; i < 40; ++i) {
    device_objects<record> all(*farheap, *made);
    const scope here(*farheap);
    EXPECT_EQ(all.at(1).deref_mut(here).count++, i);
  }
}

TEST_F(DevicePointers, KeepNoTagWhenTheyCannotBeMade) {
  for (int i = 0; i < 20; ++i) {
    const no_threads here;
    try {
      device_objects<record> all(*farheap, *made);
      FAIL() << "there is a thread";
    } catch (const std::system_error&) {
    } catch (const std::runtime_error& failure) {
      FAIL() << i << ": " << failure.what();
    }
  }
  put_record(*made, 1, 4);
  device_objects<record> all(*farheap, *made);
  EXPECT_EQ(all.at(1).read().count, 4u);
}

// A reference that a scope holds may change the object until the scope ends.
TEST_F(DevicePointers, AreWrittenBackAfterTheScopesThatHoldThem) {
  put_record(*made, 1, 1);
  device_objects<record> all(*farheap, *made);
  std::atomic<bool> is_flushed{false};
  std::thread flusher;
  {
    const scope here(*farheap);
    record& held = all.at(1).deref_mut(here);
    held.count = 2;
    flusher = std::thread([&] {
      all.flush();
      is_flushed = true;
    });
    farheap->evict_all();
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(is_flushed.load());
    EXPECT_EQ(all.statistics().written_back, 0u);
    held.count = 3;
  }
  flusher.join();
  EXPECT_EQ(record_at(*made, 1).count, 3u);
}

TEST_F(DevicePointers, WorkOnFibers) {
  constexpr std::uint64_t count = 64;
  for (std::uint64_t i = 0; i < count; ++i) put_record(*made, i, 0);
  device_objects<record> all(*farheap, *made);
  std::vector<task<void>> tasks;
  for (std::uint64_t fiber = 0; fiber < 16; ++fiber) {
    tasks.push_back(farheap->spawn([&] {
      for (std::uint64_t i = 0; i < count; ++i) {
        const scope here(*farheap);
        std::atomic_ref(all.at(i).deref_mut(here).count).fetch_add(1);
      }
    }));
  }
  for (task<void>& one : tasks) one.join();
  farheap->run([&] { all.flush(); });
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(record_at(*made, i).count, 16u);
}

TEST_F(DevicePointers, KeepWhatAServerThatIsAwayDoesNotTake) {
  constexpr std::uint64_t count = 20;
  device hurried("tcp://" + server->host() + "?timeout=5s", "sorted");
  device_objects<record> all(*farheap, hurried);
  for (std::uint64_t i = 0; i < count; ++i) all.at(i).write(record_of(i, i + 1));
  server->stop_with_devices();
  EXPECT_EQ(reason_of([&] { all.flush(); }), reason::unreachable);
  farheap->evict_all();
  const std::uint64_t failed = all.statistics().failed_write_backs;
  EXPECT_TRUE(comes_true([&] { return all.statistics().failed_write_backs > failed; }));
  EXPECT_EQ(all.statistics().copies, count);
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(all.at(i).read().count, i + 1);
  server->continue_with_devices();
  ASSERT_TRUE(patiently([&] { all.flush(); }));
  for (std::uint64_t i = 0; i < count; ++i) {
    record there;
    ASSERT_TRUE(patiently([&] { there = record_at(hurried, i); }));
    EXPECT_TRUE(is_whole(there, i));
    EXPECT_EQ(there.count, i + 1);
  }
}

// The device refuses one object, which has left before the others.
TEST_F(DevicePointers, KeepNobodyWaitingForWhatTheDeviceRefuses) {
  device refusing("tcp://" + server->host(), "troublemaker");
  device_objects<std::uint64_t> all(*farheap, refusing);
  all.at(13).write(1);
  for (std::uint64_t i = 14; i < 24; ++i) all.at(i).write(i);
  farheap->evict_all();
  EXPECT_TRUE(comes_true([&] { return all.statistics().written_back == 10; })) << all.statistics().written_back;
  EXPECT_EQ(all.statistics().copies, 1u);
  EXPECT_EQ(all.at(13).read(), 1u);
  EXPECT_EQ(reason_of([&] { all.flush(); }), reason::refused);
  all.at(13).erase();
  EXPECT_EQ(all.statistics().copies, 0u);
}

TEST_F(DevicePointers, KeepCopiesOfADeviceThatIsLost) {
  device_objects<record> all(*farheap, *made);
  all.at(1).write(record_of(1, 5));
  server->signal(SIGKILL);
  server = start(server->port());
  EXPECT_THROW(all.flush(), device_error);
  EXPECT_EQ(all.at(1).read().count, 5u);
  EXPECT_EQ(all.statistics().copies, 1u);
}

TEST_F(DevicePointers, AreAsTheDocumentSays) {
  const scratch_folder folder;
  const std::string page = SOURCE "/docs/devices.md";
  const auto built = [&](const std::string& name, const std::string& first_line, const std::string& more) {
    std::ofstream(folder.path() + "/" + name + ".cc") << testing_support::code_of(page, first_line) << more;
    testing_support::build(folder.path() + "/" + name + ".cc", folder.path() + "/" + name + ".so");
    return folder.path() + "/" + name + ".so";
  };
  const std::string counter = built("counter", "#include <far/plugin.h>", "");
  // The client's symbols of Farheap are those of this program.
  const std::string client = built("client", "#include <far/device_ptr.h>",
                                   "extern \"C\" std::uint64_t run(far::runtime& farheap, far::device& counter) {\n"
                                   "  return add_here(farheap, counter, 40);\n}\n");
  void* const loaded = dlopen(client.c_str(), RTLD_NOW);
  ASSERT_NE(loaded, nullptr) << dlerror();
  const auto run = reinterpret_cast<std::uint64_t (*)(runtime&, device&)>(dlsym(loaded, "run"));
  ASSERT_NE(run, nullptr);
  device counting("memory:?plugin=" + counter, "counter");
  const std::uint64_t two = 2;
  counting.compute(0, std::as_bytes(std::span(&two, 1)));
  EXPECT_EQ(run(*farheap, counting), 42u);
}

// Servers die and come back empty, one after the other, while copies leave.
TEST_F(DevicePointers, OutliveServersWithCopies) {
  std::vector<std::unique_ptr<device_server>> servers;
  for (int i = 0; i < 3; ++i) servers.push_back(start());
  device copied(
      "tcp://" + servers[0]->host() + "," + servers[1]->host() + "," + servers[2]->host() + "?timeout=20s&copies=2",
      "sorted", {.parameters = {}, .deadline = 30s});
  std::size_t victim = 0;
  testing_support::use_together(*farheap, copied, 300, 1500, [&](device_objects<record>&) {
    farheap->evict_all();
    std::this_thread::sleep_for(20ms);
    if (victim >= 3 || copied.copies() < 2) return;
    const std::uint16_t port = servers[victim]->port();
    servers[victim]->signal(SIGKILL);
    servers[victim++] = start(port);
    put_record(copied, 9'000'000, 0);  // a change notices that a copy is lost
  });
  EXPECT_GT(victim, 0u);
}

TEST_F(DevicePointers, KeepEveryByteWhileCopiesLeave) {
  testing_support::use_together(*farheap, *made, 1000, 3000, [&](device_objects<record>&) {
    farheap->evict_all();
    std::this_thread::sleep_for(5ms);
  });
}

}  // namespace
}  // namespace far
