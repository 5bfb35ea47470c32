#include "train/place.hpp"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "comm/devices.hpp"
#include "cuda/device.hpp"
#include "mpi/job.hpp"

namespace lockstep::train {

Place choose_place(config::DeviceKind kind, const mpi::Communicator& world) {
  const bool everywhere = world.min(static_cast<std::int64_t>(cuda::device_count())) > 0;
  if (kind == config::DeviceKind::cpu || (kind == config::DeviceKind::automatic && !everywhere)) {
    Place place;
    const auto hosts = world.all_gather_text(mpi::host_name());
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      place.table += text(rank ? "\n" : "", "rank ", rank, ": host ", hosts[rank], ", CPU");
    }
    return place;
  }
  const auto choice = comm::assign_devices(world);
  cuda::set_device(choice.device);
  Place place{c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(choice.device)), choice.table()};
  place.hopper_host = std::all_of(choice.placements.begin(), choice.placements.end(), [&](const auto& other) {
    return other.host == choice.placements.front().host && other.device.major == 9 && other.device.minor == 0;
  });
  // Not the legacy default stream, which no graph can be captured on.
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, place.device.index()));
  return place;
}

config::ReduceSettings settle_reduction(config::ReduceSettings settings, const Place& place) {
  if (settings.overlap != config::OverlapMode::automatic) return settings;
  if (!place.cuda() || !place.hopper_host) {
    settings.overlap = config::OverlapMode::on;
    return settings;
  }
  settings.overlap = config::OverlapMode::off;
  settings.first_bucket_bytes = settings.bucket_bytes = std::numeric_limits<std::int64_t>::max();
  return settings;
}

}  // namespace lockstep::train
