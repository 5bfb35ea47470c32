#pragma once

#include <functional>
#include <string>

#include "base/error.hpp"

namespace lockstep::test {

/// The message and exit code of the error that `body` raises: "64 --lr: ..."; empty when it raises none.
inline std::string failure(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + " " + error.what();
  }
  return {};
}

}  // namespace lockstep::test
