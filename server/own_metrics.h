// What the metrics port of a memory server shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "server/metrics.h"
#include "server/metrics_source.h"
#include "server/plots.h"

namespace far::server {

class own_metrics final : public metrics_source {
 public:
  // `looked_after_at_ns`: when the server last checked its sessions; nullptr: unknown. Requires: it, and what `view`
  // refers to, outlive this.
  explicit own_metrics(server_view view, const std::atomic<std::uint64_t>* looked_after_at_ns = nullptr)
      : view_(std::move(view)), looked_after_at_ns_(looked_after_at_ns) {}

  void keep_up(std::uint64_t now_ns) override {
    if (past_.is_due(now_ns)) past_.note(sum(view_.loops), view_.lent->used(), now_ns);
  }
  [[nodiscard]] std::string metrics(std::uint64_t now_ns) override { return prometheus_text(view_, now_ns); }
  [[nodiscard]] std::string page(std::uint64_t now_ns) override {
    return status_page(view_, speed_.look(sum(view_.loops), now_ns), past_, now_ns);
  }
  [[nodiscard]] std::string sickness(std::uint64_t now_ns) override;
  [[nodiscard]] std::string refusal() override { return view_.lent->draining() ? "draining" : ""; }

 private:
  const server_view view_;
  const std::atomic<std::uint64_t>* const looked_after_at_ns_;
  rate_meter speed_;
  history past_;
};

}  // namespace far::server
