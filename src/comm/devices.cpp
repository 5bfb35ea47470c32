#include "comm/devices.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::comm {

namespace {

std::string count_of(int count, const char* thing) {
  return text(count, " ", thing, count == 1 ? "" : "s");
}

/// Fields of one rank's facts on the wire; no field holds a tab.
std::string pack(const std::vector<std::string>& fields) {
  return join(fields, "\t");
}

RankView unpack_view(const std::string& line) {
  const auto fields = split(line, '\t');
  RankView view;
  view.node = {std::stoi(fields.at(0)), std::stoi(fields.at(1)), fields.at(3)};
  view.visible_devices = std::stoi(fields.at(2));
  return view;
}

std::string pack_device(const cuda::DeviceInfo& device) {
  return pack({text(device.index), text(device.major), text(device.minor), text(device.multiprocessors),
               text(device.memory_bytes), device.uuid, device.pci_bus, device.name});
}

cuda::DeviceInfo unpack_device(const std::string& line) {
  const auto fields = split(line, '\t');
  cuda::DeviceInfo device;
  device.index = std::stoi(fields.at(0));
  device.major = std::stoi(fields.at(1));
  device.minor = std::stoi(fields.at(2));
  device.multiprocessors = std::stoi(fields.at(3));
  device.memory_bytes = std::stoll(fields.at(4));
  device.uuid = fields.at(5);
  device.pci_bus = fields.at(6);
  device.name = fields.at(7);
  return device;
}

}  // namespace

std::vector<int> choose_devices(const std::vector<RankView>& ranks) {
  std::vector<int> devices;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [node, visible] = ranks[rank];
    if (visible == 0) {
      throw UsageError(text("rank ", rank, " on host ", node.host,
                            " sees no GPU; check the driver and CUDA_VISIBLE_DEVICES, or use --device cpu"),
                       ExitCode::unavailable);
    }
    if (visible > 1 && node.local_rank >= visible) {
      throw UsageError(text("host ", node.host, " has ", count_of(node.local_size, "rank"), " but only ",
                            count_of(visible, "visible GPU"), "; start at most ", visible,
                            " ranks on it, or use --device cpu"),
                       ExitCode::configuration);
    }
    devices.push_back(visible == 1 ? 0 : node.local_rank);
  }
  return devices;
}

void check_distinct(const std::vector<Placement>& placements) {
  std::map<std::pair<std::string, std::string>, std::size_t> first_user;
  for (std::size_t rank = 0; rank < placements.size(); ++rank) {
    const auto& [host, device] = placements[rank];
    const auto [found, is_first] = first_user.try_emplace({host, device.uuid}, rank);
    if (is_first) continue;
    throw UsageError(
        text("ranks ", found->second, " and ", rank, " on host ", host, " would both use the GPU ",
             device.name, " at ", device.pci_bus, " (", device.uuid,
             "); start one rank a GPU, let each rank see all GPUs or one of its own, or use --device cpu"),
        ExitCode::configuration);
  }
}

std::string DeviceChoice::table() const {
  std::string lines;
  for (std::size_t rank = 0; rank < placements.size(); ++rank) {
    const auto& [host, device] = placements[rank];
    lines += text(rank ? "\n" : "", "rank ", rank, ": host ", host, ", GPU ", device.index, ", ", device.name,
                  ", ", device.pci_bus);
  }
  return lines;
}

DeviceChoice assign_devices(const mpi::Communicator& world) {
  const auto node = mpi::locate(world);
  const auto views = world.all_gather_text(
      pack({text(node.local_rank), text(node.local_size), text(cuda::device_count()), node.host}));
  std::vector<RankView> ranks;
  for (const auto& line : views) ranks.push_back(unpack_view(line));
  const auto devices = choose_devices(ranks);

  DeviceChoice choice;
  choice.device = devices[static_cast<std::size_t>(world.rank())];
  std::string own;
  mpi::agree(world, [&] { own = pack_device(cuda::describe(choice.device)); });
  const auto described = world.all_gather_text(own);
  for (std::size_t rank = 0; rank < described.size(); ++rank) {
    choice.placements.push_back({ranks[rank].node.host, unpack_device(described[rank])});
  }
  check_distinct(choice.placements);
  return choice;
}

}  // namespace lockstep::comm
