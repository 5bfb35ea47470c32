#pragma once

#include <utility>

namespace lockstep {

/// Sole owner of one C handle: moves leave the source empty, destruction releases once, copies do not exist.
/// `Traits` gives `using Type`, `static Type empty()` and `static void release(Type) noexcept`.
template <class Traits>
class Handle {
 public:
  using Type = typename Traits::Type;

  Handle() = default;
  explicit Handle(Type raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, Traits::empty())) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = std::exchange(other.raw_, Traits::empty());
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  Type get() const { return raw_; }
  explicit operator bool() const { return !(raw_ == Traits::empty()); }

  /// Where a C call may store a new handle; what was held before is released first.
  Type* out() {
    reset();
    return &raw_;
  }

  /// Gives the handle to a caller who closes it himself, as where closing can fail.
  Type detach() noexcept { return std::exchange(raw_, Traits::empty()); }

  void reset() noexcept {
    if (!(raw_ == Traits::empty())) Traits::release(std::exchange(raw_, Traits::empty()));
  }

 private:
  Type raw_ = Traits::empty();
};

}  // namespace lockstep
