#include "data/loader.hpp"

#include <csignal>
#include <new>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

constexpr std::align_val_t kAlignment{64};

void check_settings(const LoaderSettings& settings, const DataSet& data) {
  const auto refuse = [](const auto&... words) { throw UsageError(text(words...)); };
  if (settings.world < 1 || settings.rank < 0 || settings.rank >= settings.world) {
    refuse("rank ", settings.rank, " of world size ", settings.world, " does not exist");
  }
  if (settings.prefetch < 1)
    refuse("the loader reads ", settings.prefetch, " batches ahead; it must be at least 1");
  if (settings.accumulation < 1)
    refuse("a step has ", settings.accumulation, " micro-batches; it must have at least 1");
  if (settings.first_step < 0) refuse("the first step is ", settings.first_step, "; it must be at least 0");
  const std::int64_t shift = settings.augment_shift;
  if (shift == 0) return;
  const Shape& shape = data.input_shape();
  if (shape.size() != 3) {
    refuse("rows of shape ", hdf5::to_text(shape),
           " cannot be shifted: only images [channels, height, width] can");
  }
  if (shift < 0 || shift >= shape[1] || shift >= shape[2]) {
    refuse("images of ", shape[1], " x ", shape[2], " cannot be shifted by up to ", shift, " pixels");
  }
}

// Signals are for the main thread: a thread started while this lives does not receive them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::shared_ptr<void> host_memory(std::int64_t bytes) {
  return {::operator new(static_cast<std::size_t>(bytes), kAlignment),
          [](void* memory) { ::operator delete(memory, kAlignment); }};
}

Loader::Loader(const DataSet& data, Order order, LoaderSettings settings)
    : data_((check_settings(settings, data), data)),
      order_(std::move(order)),
      settings_(std::move(settings)),
      capacity_((order_.global_batch() + settings_.world - 1) / settings_.world),
      rows_(data_, order_.mode() == config::ShuffleMode::full ? Access::rows : Access::blocks,
            settings_.cache_bytes),
      slots_(static_cast<std::size_t>(settings_.prefetch)),
      scratch_(static_cast<std::size_t>(settings_.augment_shift > 0 ? data_.input_row_bytes() : 0)),
      next_step_(settings_.first_step) {
  if (order_.rows() != data_.rows()) {
    throw UsageError(text("the order is of ", order_.rows(), " rows, the data set has ", data_.rows()));
  }
  for (Slot& slot : slots_) {
    memory_.push_back(settings_.allocate(capacity_ * data_.input_row_bytes()));
    slot.inputs = static_cast<std::byte*>(memory_.back().get());
    if (!data_.tokens()) {
      memory_.push_back(settings_.allocate(capacity_ * static_cast<std::int64_t>(sizeof(std::int64_t))));
      slot.targets = static_cast<std::int64_t*>(memory_.back().get());
    }
    slot.rows.reserve(static_cast<std::size_t>(capacity_));
    free_.push_back({&slot, {}});
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Slot& Loader::next() {
  const Stopwatch waited;
  std::unique_lock lock(mutex_);
  if (full_.empty() && !failure_ && next_step_ >= settings_.end_step) {
    throw UsageError(
        text("step ", next_step_, " was asked of a loader that ends before step ", settings_.end_step));
  }
  if (held_ == slots_.size()) {
    throw UsageError(
        text("all ", held_, " slots of the loader are held; release one before asking for the next"));
  }
  changed_.wait(lock, [&] { return !full_.empty() || failure_; });
  if (full_.empty()) std::rethrow_exception(failure_);  // after the slots that were filled before it
  Slot* slot = full_.front();
  full_.pop_front();
  ++next_step_;
  ++held_;
  slot->wait_seconds = waited.seconds();
  return *slot;
}

void Loader::release(const Slot& slot, std::function<void()> wait_until_free) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(
        {&slots_.at(static_cast<std::size_t>(&slot - slots_.data())), std::move(wait_until_free)});
    --held_;
  }
  changed_.notify_all();
}

void Loader::run() {
  try {
    for (std::int64_t step = settings_.first_step; step < settings_.end_step; ++step) {
      Free taken;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !free_.empty(); });
        if (stop_) return;
        taken = std::move(free_.front());
        free_.pop_front();
      }
      if (taken.wait_until_free) taken.wait_until_free();
      fill(*taken.slot, step);
      {
        const std::lock_guard lock(mutex_);
        full_.push_back(taken.slot);
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void Loader::fill(Slot& slot, std::int64_t step) {
  slot.step = step;
  slot.epoch = order_.epoch_of(step);
  slot.global_count = order_.batch_size(step);
  const Share mine = share(slot.global_count, settings_.rank, settings_.world);
  slot.count = mine.count();
  slot.rows.clear();
  for (std::int64_t position = mine.first; position < mine.last; ++position) {
    slot.rows.push_back(order_.row(step, position));
  }
  slot.micro.clear();
  for (std::int64_t micro = 0; micro < settings_.accumulation; ++micro) {
    slot.micro.push_back(micro_share({0, slot.count}, micro, settings_.accumulation));
  }
  rows_.read(slot.rows, slot.inputs, slot.targets);
  if (settings_.augment_shift == 0) return;
  for (std::size_t i = 0; i < slot.rows.size(); ++i) {
    std::byte* image = slot.inputs + i * scratch_.size();
    std::copy(image, image + scratch_.size(), scratch_.begin());
    shift_image(scratch_.data(), image, data_.input_shape(), hdf5::size_bytes(data_.input_scalar()),
                image_shift(order_.seed(), slot.epoch, slot.rows[i], settings_.augment_shift));
  }
}

}  // namespace lockstep::data
