#include "metrics.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

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

TEST(Metrics, NamesThatAreCutWithinACharacterStayText) {
  job_snapshot job;
  job.processes = {process(10, "fahrger\xc3\xa4t\xc3")};
  EXPECT_NE(prometheus_text({job}).find("program=\"fahrger\xc3\xa4t\xef\xbf\xbd\""), std::string::npos);
}

// A process that listens where a runtime would, and says what it likes. All users can have such names.
TEST(Metrics, AProcessThatGivesNoNumbersIsLeftOut) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_GE(listener, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = "farheap-" + std::to_string(getpid());
  name.copy(address.sun_path + 1, name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  for (const bool is_number : {true, false}) {
    const std::string reply = std::string("farheap/1 ok {\"budget_bytes\": ") + (is_number ? "5" : "\"5\"") + "}\n";
    std::thread answers([&] {
      const int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      std::array<char, 512> asked{};
      EXPECT_GT(recv(peer, asked.data(), asked.size(), 0), 0);
      EXPECT_EQ(send(peer, reply.data(), reply.size(), MSG_NOSIGNAL), static_cast<ssize_t>(reply.size()));
      close(peer);
    });
    const result<job_snapshot> taken = take_snapshot(getpid());
    answers.join();
    EXPECT_EQ(taken.ok(), is_number);
    EXPECT_EQ(taken.ok() ? taken.value().totals.counted.budget_bytes : 5, 5u);
  }
  close(listener);
}

TEST(Metrics, WithoutProgramsThereAreNoSamples) {
  const std::string text = prometheus_text({});
  EXPECT_EQ(text.find('{'), std::string::npos);
  EXPECT_NE(text.find("# TYPE farheap_local_bytes gauge\n"), std::string::npos);
}

}  // namespace
}  // namespace far::tools
