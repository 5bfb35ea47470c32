#include <cstring>

#include "base/text.hpp"
#include "hdf5/driver.hpp"

namespace lockstep::hdf5 {

namespace {

// Attributes above these are damage, and must not become allocations.
constexpr std::size_t kMaximumString = 1 << 20;
constexpr std::int64_t kMaximumCount = 1 << 16;

struct Opened {
  Identifier attribute;
  Identifier type;
  std::int64_t count;  // of elements
};

Opened open_attribute(hid_t object, const std::string& path, const std::string& dataset,
                      const std::string& name) {
  if (H5Aexists(object, name.c_str()) <= 0) {
    throw DataError(path, dataset, -1, text("attribute ", name, " is missing"));
  }
  Opened opened;
  opened.attribute = Identifier(H5Aopen(object, name.c_str(), H5P_DEFAULT));
  if (!opened.attribute) throw DataError(path, dataset, -1, text("attribute ", name, ": ", failure_words()));
  opened.type = checked(H5Aget_type(opened.attribute.get()), "H5Aget_type");
  const Identifier space = checked(H5Aget_space(opened.attribute.get()), "H5Aget_space");
  opened.count = H5Sget_simple_extent_npoints(space.get());
  if (opened.count < 0 || opened.count > kMaximumCount) {
    throw DataError(path, dataset, -1, text("attribute ", name, " claims ", opened.count, " elements"));
  }
  return opened;
}

}  // namespace

void Object::check_write(bool failed, const std::string& problem) const {
  const int refused = origin_.written ? origin_.written->error : 0;
  if (!failed && refused == 0) return;
  throw DataError(origin_.path, origin_.dataset, -1,
                  text(problem, ": ", refused != 0 ? std::strerror(refused) : failure_words()),
                  origin_.write_code);
}

bool Object::has_attribute(const std::string& name) const {
  const Lock lock;
  return H5Aexists(id_.get(), name.c_str()) > 0;
}

std::int64_t Object::integer(const std::string& name) const {
  const Lock lock;
  const Opened opened = open_attribute(id_.get(), origin_.path, origin_.dataset, name);
  if (H5Tget_class(opened.type.get()) != H5T_INTEGER || opened.count != 1) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, " is not one integer"));
  }
  std::int64_t value = 0;
  if (H5Aread(opened.attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, ": ", failure_words()));
  }
  return value;
}

std::vector<double> Object::reals(const std::string& name) const {
  const Lock lock;
  const Opened opened = open_attribute(id_.get(), origin_.path, origin_.dataset, name);
  const H5T_class_t type_class = H5Tget_class(opened.type.get());
  if (type_class != H5T_FLOAT && type_class != H5T_INTEGER) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, " holds no numbers"));
  }
  std::vector<double> values(static_cast<std::size_t>(opened.count));
  if (!values.empty() && H5Aread(opened.attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, ": ", failure_words()));
  }
  return values;
}

double Object::real(const std::string& name) const {
  const std::vector<double> values = reals(name);
  if (values.size() != 1) {
    throw DataError(origin_.path, origin_.dataset, -1,
                    text("attribute ", name, " holds ", values.size(), " numbers, not one"));
  }
  return values.front();
}

std::string Object::string(const std::string& name) const {
  const Lock lock;
  const Opened opened = open_attribute(id_.get(), origin_.path, origin_.dataset, name);
  if (H5Tget_class(opened.type.get()) != H5T_STRING || opened.count != 1) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, " is not one string"));
  }
  if (H5Tis_variable_str(opened.type.get()) > 0) {  // what h5py writes
    char* words = nullptr;
    if (H5Aread(opened.attribute.get(), opened.type.get(), &words) < 0) {
      throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, ": ", failure_words()));
    }
    std::string value = words == nullptr ? "" : words;
    H5free_memory(words);
    return value;
  }
  const std::size_t size = H5Tget_size(opened.type.get());
  if (size > kMaximumString) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, " claims ", size, " bytes"));
  }
  std::string value(size, '\0');
  if (H5Aread(opened.attribute.get(), opened.type.get(), value.data()) < 0) {
    throw DataError(origin_.path, origin_.dataset, -1, text("attribute ", name, ": ", failure_words()));
  }
  value.resize(std::char_traits<char>::length(value.c_str()));
  return value;
}

void Object::write_attribute(const std::string& name, Identifier space, std::int64_t type,
                             const void* value) {
  const Identifier attribute(
      H5Acreate2(id_.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  check_write(!attribute || H5Awrite(attribute.get(), type, value) < 0, "cannot write attribute " + name);
}

void Object::set_integer(const std::string& name, std::int64_t value) {
  const Lock lock;
  write_attribute(name, checked(H5Screate(H5S_SCALAR), "H5Screate"), H5T_STD_I64LE, &value);
}

void Object::set_real(const std::string& name, double value) {
  const Lock lock;
  write_attribute(name, checked(H5Screate(H5S_SCALAR), "H5Screate"), H5T_IEEE_F64LE, &value);
}

void Object::set_string(const std::string& name, const std::string& value) {
  const Lock lock;
  const Identifier type = checked(H5Tcopy(H5T_C_S1), "H5Tcopy");
  check(H5Tset_size(type.get(), value.size() + 1), "H5Tset_size");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
  write_attribute(name, checked(H5Screate(H5S_SCALAR), "H5Screate"), type.get(), value.c_str());
}

void Object::set_reals(const std::string& name, const std::vector<double>& values) {
  const Lock lock;
  const hsize_t count = values.size();
  write_attribute(name, checked(H5Screate_simple(1, &count, nullptr), "H5Screate_simple"), H5T_IEEE_F64LE,
                  values.data());
}

}  // namespace lockstep::hdf5
