#include "metrics.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
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

TEST(Metrics, WithoutProgramsThereAreNoSamples) {
  const std::string text = prometheus_text({});
  EXPECT_EQ(text.find('{'), std::string::npos);
  EXPECT_NE(text.find("# TYPE farheap_local_bytes gauge\n"), std::string::npos);
}

}  // namespace
}  // namespace far::tools
