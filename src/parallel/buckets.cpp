#include "parallel/buckets.hpp"

namespace lockstep::parallel {

std::vector<Bucket> bucket_layout(const std::vector<Place>& places, std::int64_t low_size,
                                  const config::ReduceSettings& settings) {
  std::vector<Bucket> buckets;
  std::int64_t limit = settings.first_bucket_bytes;
  bool open = false;
  for (std::size_t index = 0; index < places.size(); ++index) {
    const Place& place = places[index];
    const bool low = place.begin < low_size;
    if (open && !low && buckets.back().range.begin < low_size) open = false;  // the parts are two arrays
    if (!open) buckets.push_back({{place.begin, 0}, {}});
    Bucket& bucket = buckets.back();
    bucket.parameters.push_back(index);
    bucket.range.count = place.begin + place.count - bucket.range.begin;
    open = bucket.range.count * (low ? 2 : 4) < limit;
    if (!open) limit = settings.bucket_bytes;
  }
  return buckets;
}

}  // namespace lockstep::parallel
