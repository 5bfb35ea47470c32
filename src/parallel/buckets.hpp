#pragma once

#include <cstdint>
#include <vector>

#include "config/settings.hpp"
#include "precision/flat_parameters.hpp"

namespace lockstep::parallel {

/// A range of the flat gradients that is reduced at once, and the parameters that have to be ready before.
struct Bucket {
  precision::Range range;
  std::vector<std::size_t> parameters;  ///< indices into FlatParameters::parameters(), consecutive
};

/// What the layout needs to know of a parameter.
struct Place {
  std::int64_t begin;
  std::int64_t count;
};

/// Cuts the flat space into buckets, in the order in which the backward pass fills it: the first one small,
/// so that reduction starts early, then of `bucket_bytes`: a bucket ends with the parameter that makes it
/// that large or larger. A bucket holds whole parameters and the gaps between them, and lies in one part of
/// the space ([0, low_size) of 2 bytes an element, the rest of 4). Pure; alike on every rank.
std::vector<Bucket> bucket_layout(const std::vector<Place>& places, std::int64_t low_size,
                                  const config::ReduceSettings& settings);

}  // namespace lockstep::parallel
