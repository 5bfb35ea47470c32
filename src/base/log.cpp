#include "base/log.hpp"

// The only file that sees spdlog and fmt: Torch ships an fmt of its own.
#define SPDLOG_HEADER_ONLY
#define FMT_HEADER_ONLY
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace lockstep::log {

namespace {

int rank_of_process = 0;
int size_of_world = 1;

spdlog::logger& logger() {
  static const auto made = [] {
    auto logger =
        std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::info);
    return logger;
  }();
  return *made;
}

std::string prefix() {
  return size_of_world > 1 ? "[rank " + std::to_string(rank_of_process) + "] " : std::string();
}

}  // namespace

void set_rank(int rank, int world_size) {
  rank_of_process = rank;
  size_of_world = world_size;
}

void info(const std::string& message) {
  if (rank_of_process == 0) logger().info(message);
}

void warn(const std::string& message) {
  logger().warn(prefix() + "warning: " + message);
}

void error(const std::string& message) {
  logger().error(prefix() + "error: " + message);
}

void line(const std::string& message) {
  logger().info(message);
}

}  // namespace lockstep::log
