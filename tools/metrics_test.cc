#include "metrics.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace far::tools {
namespace {

std::atomic<bool> broken_folders{false};
std::atomic<int> failed_reads{0};

}  // namespace
}  // namespace far::tools

// In place of the C library's: folders whose disk fails behind their first entry.
extern "C" __attribute__((visibility("default"))) dirent* readdir(DIR* folder) {
  using function = dirent* (*)(DIR*);
  static const auto real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "readdir"));
  static const DIR* has_given = nullptr;
  if (far::tools::broken_folders && has_given == folder) {
    has_given = nullptr;
    ++far::tools::failed_reads;
    errno = EIO;
    return nullptr;
  }
  dirent* const got = real(folder);
  if (got != nullptr && *got->d_name != '.') has_given = folder;
  return got;
}

namespace far::tools {
namespace {

preload::job_process process(pid_t pid, const char* program) {
  preload::job_process one;
  one.pid = pid;
  one.running = true;
  std::strcpy(one.program, program);
  return one;
}

TEST(Metrics, EachCounterOfEachProcessIsASample) {
  job_snapshot job;
  job.processes = {process(10, "first"), process(11, "second"), process(12, "ended")};
  job.processes[2].running = false;
  job.processes[0].counted.misses = 7;
  job.processes[1].counted.wait_ns = 1'500'000'001;
  job.processes[1].counted.away_servers = 2;
  const std::string text = prometheus_text({job});
  for (const char* line :
       {"\n# TYPE farheap_misses_total counter\nfarheap_misses_total{pid=\"10\",program=\"first\",job=\"10\"} 7\n"
        "farheap_misses_total{pid=\"11\",program=\"second\",job=\"10\"} 0\n#",
        "\nfarheap_wait_seconds_total{pid=\"11\",program=\"second\",job=\"10\"} 1.500000001\n",
        "\n# TYPE farheap_away_servers gauge\n", "farheap_away_servers{pid=\"11\",program=\"second\",job=\"10\"} 2\n",
        "# TYPE farheap_local_bytes gauge\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
  EXPECT_EQ(text.find("ended"), std::string::npos);
}

TEST(Metrics, LabelsAreEscaped) {
  job_snapshot job;
  job.processes = {process(10, "a\"b\\c\nd")};
  EXPECT_NE(prometheus_text({job}).find("program=\"a\\\"b\\\\c\\nd\""), std::string::npos);
}

// A reader refuses the whole text for one byte that is not UTF-8. The kernel cuts names anywhere.
TEST(Metrics, LabelsAreUtf8) {
  job_snapshot job;
  job.processes = {process(10, "caf\xe9"), process(11, "gr\xc3\xb6\xc3"), process(12, "\xe2\x82\xac \xff!")};
  const std::string text = prometheus_text({job});
  for (const char* label : {"program=\"caf\xef\xbf\xbd\"", "program=\"gr\xc3\xb6\xef\xbf\xbd\"",
                            "program=\"\xe2\x82\xac \xef\xbf\xbd!\""}) {
    EXPECT_NE(text.find(label), std::string::npos) << label;
  }
}

// Listens as the program of this process number would.
int listen_as(pid_t pid) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string name = "farheap-" + std::to_string(pid);
  std::memcpy(at.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&at), length), 0);
  EXPECT_EQ(listen(listener, 8), 0);
  return listener;
}

// Answers `connections` requests as a program of this process number would.
class impostor {
 public:
  impostor(std::string reply, int connections) : listener_(listen_as(getpid())) {
    thread_ = std::thread([this, connections, said = std::move(reply)] {
      for (int i = 0; i < connections; ++i) {
        const int client = accept(listener_, nullptr, nullptr);
        if (client < 0) return;
        std::array<char, 256> request{};
        EXPECT_GT(recv(client, request.data(), request.size(), 0), 0);
        EXPECT_EQ(send(client, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
        close(client);
      }
    });
  }
  ~impostor() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  impostor(const impostor&) = delete;
  impostor& operator=(const impostor&) = delete;

 private:
  int listener_;
  std::thread thread_;
};

// Any user may run a program that answers anything, and root looks at the programs of all.
TEST(Metrics, AnswersThatAreNotCountersAreRefused) {
  for (const char* value : {"\"many\"", "null", "{}", "[1]", "true", "-1", "1e300"}) {
    const impostor program(std::string("farheap/1 ok {\"misses\": ") + value + "}\n", 1);
    EXPECT_FALSE(take_snapshot(getpid()).ok()) << value;
  }
  const impostor program("farheap/1 ok {\"misses\": 12, \"of_a_newer_version\": \"text\"}\n", 1);
  const result<job_snapshot> seen = take_snapshot(getpid());
  ASSERT_TRUE(seen.ok()) << seen.error().message;
  EXPECT_EQ(seen.value().processes.front().counted.misses, 12u);
}

// A process that does not answer keeps no other out of a scrape, and each is asked once: a second time would double the
// wait for the silent one.
TEST(Metrics, ASilentProcessIsLeftOut) {
  const pid_t silent = fork();
  if (silent == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    listen_as(getpid());
    for (;;) pause();
  }
  const impostor program("farheap/1 ok {\"misses\": 12}\n", 1);
  // Before there are two names, there is nobody to wait for.
  const std::string name = "farheap-" + std::to_string(silent);
  for (std::string names; names.find(name) == std::string::npos;) {
    std::ifstream file("/proc/net/unix");
    names.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::vector<job_snapshot> seen = take_all_snapshots();
  kill(silent, SIGKILL);
  waitpid(silent, nullptr, 0);
  const auto is_seen = [&](pid_t pid) {
    return std::ranges::any_of(seen, [&](const job_snapshot& job) { return job.processes.front().pid == pid; });
  };
  EXPECT_TRUE(is_seen(getpid()));
  EXPECT_FALSE(is_seen(silent));
}

TEST(Metrics, AFolderThatCannotBeReadHarmsNobody) {
  const scratch_folder folder;
  std::ofstream(folder.path() + "/first");
  std::ofstream(folder.path() + "/second");
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1), 0);
  broken_folders = true;
  EXPECT_NO_THROW(static_cast<void>(find_jobs()));
  broken_folders = false;
  EXPECT_GT(failed_reads.load(), 0);
}

TEST(Metrics, WithoutProgramsThereAreNoSamples) {
  const std::string text = prometheus_text({});
  EXPECT_EQ(text.find('{'), std::string::npos);
  EXPECT_NE(text.find("# TYPE farheap_local_bytes gauge\n"), std::string::npos);
}

}  // namespace
}  // namespace far::tools
