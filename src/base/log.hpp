#pragma once

#include <string>

namespace lockstep::log {

/// Lines go to standard error as "[rank 0] message"; information is printed by rank 0 only.
void set_rank(int rank, int world_size);

void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

/// The message as it is, from any rank.
void line(const std::string& message);

}  // namespace lockstep::log
