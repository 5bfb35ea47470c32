#include "hdf5/scalar.hpp"

#include <array>

#include "base/text.hpp"
#include "hdf5/library.hpp"

namespace lockstep::hdf5 {

namespace {

struct Row {
  Scalar scalar;
  std::string_view name;
  std::int64_t bytes;
  bool integer;
  bool is_signed;
};

constexpr std::array<Row, 12> kScalars = {{
    {Scalar::uint8, "uint8", 1, true, false},
    {Scalar::int8, "int8", 1, true, true},
    {Scalar::uint16, "uint16", 2, true, false},
    {Scalar::int16, "int16", 2, true, true},
    {Scalar::uint32, "uint32", 4, true, false},
    {Scalar::int32, "int32", 4, true, true},
    {Scalar::uint64, "uint64", 8, true, false},
    {Scalar::int64, "int64", 8, true, true},
    {Scalar::float16, "float16", 2, false, true},
    {Scalar::bfloat16, "bfloat16", 2, false, true},
    {Scalar::float32, "float32", 4, false, true},
    {Scalar::float64, "float64", 8, false, true},
}};

const Row& row(Scalar scalar) {
  return kScalars.at(static_cast<std::size_t>(scalar));
}

// Where the parts of a floating-point number lie, in bits from the least significant.
struct FloatFormat {
  Scalar scalar;
  std::size_t bytes;
  std::size_t exponent_position;
  std::size_t exponent_bits;
  std::size_t bias;
};

constexpr std::array<FloatFormat, 4> kFloats = {{
    {Scalar::float16, 2, 10, 5, 15},
    {Scalar::bfloat16, 2, 7, 8, 127},
    {Scalar::float32, 4, 23, 8, 127},
    {Scalar::float64, 8, 52, 11, 1023},
}};

const char* class_name(H5T_class_t type_class) {
  switch (type_class) {
    case H5T_STRING:
      return "strings";
    case H5T_VLEN:
      return "rows of varying length";
    case H5T_COMPOUND:
      return "compound values";
    case H5T_REFERENCE:
      return "references";
    case H5T_ARRAY:
      return "arrays as elements";
    case H5T_OPAQUE:
      return "opaque bytes";
    default:
      return "a type that is no number";
  }
}

bool same_format(hid_t type, const FloatFormat& format) {
  std::size_t sign = 0;
  std::size_t exponent = 0;
  std::size_t exponent_bits = 0;
  std::size_t mantissa = 0;
  std::size_t mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) return false;
  return H5Tget_size(type) == format.bytes && sign == 8 * format.bytes - 1 &&
         exponent == format.exponent_position && exponent_bits == format.exponent_bits && mantissa == 0 &&
         mantissa_bits == format.exponent_position && H5Tget_ebias(type) == format.bias &&
         H5Tget_norm(type) == H5T_NORM_IMPLIED;
}

}  // namespace

std::int64_t size_bytes(Scalar scalar) {
  return row(scalar).bytes;
}
std::string_view name(Scalar scalar) {
  return row(scalar).name;
}
bool is_integer(Scalar scalar) {
  return row(scalar).integer;
}

Scalar scalar_named(std::string_view wanted) {
  for (const Row& known : kScalars) {
    if (known.name == wanted) return known.scalar;
  }
  throw UsageError(text("unknown element type \"", wanted, "\""));
}

Identifier type_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::uint8:
      return checked(H5Tcopy(H5T_STD_U8LE), "H5Tcopy");
    case Scalar::int8:
      return checked(H5Tcopy(H5T_STD_I8LE), "H5Tcopy");
    case Scalar::uint16:
      return checked(H5Tcopy(H5T_STD_U16LE), "H5Tcopy");
    case Scalar::int16:
      return checked(H5Tcopy(H5T_STD_I16LE), "H5Tcopy");
    case Scalar::uint32:
      return checked(H5Tcopy(H5T_STD_U32LE), "H5Tcopy");
    case Scalar::int32:
      return checked(H5Tcopy(H5T_STD_I32LE), "H5Tcopy");
    case Scalar::uint64:
      return checked(H5Tcopy(H5T_STD_U64LE), "H5Tcopy");
    case Scalar::int64:
      return checked(H5Tcopy(H5T_STD_I64LE), "H5Tcopy");
    case Scalar::float32:
      return checked(H5Tcopy(H5T_IEEE_F32LE), "H5Tcopy");
    case Scalar::float64:
      return checked(H5Tcopy(H5T_IEEE_F64LE), "H5Tcopy");
    case Scalar::float16:
    case Scalar::bfloat16:
      break;
  }
  const FloatFormat& format = kFloats.at(scalar == Scalar::float16 ? 0 : 1);
  Identifier type = checked(H5Tcopy(H5T_IEEE_F32LE), "H5Tcopy");
  check(H5Tset_fields(type.get(), 15, format.exponent_position, format.exponent_bits, 0,
                      format.exponent_position),
        "H5Tset_fields");
  check(H5Tset_size(type.get(), format.bytes),
        "H5Tset_size");  // after the fields: they must fit at every moment
  check(H5Tset_ebias(type.get(), format.bias), "H5Tset_ebias");
  return type;
}

Scalar scalar_of(hid_t type, const std::string& path, const std::string& dataset) {
  const H5T_class_t type_class = H5Tget_class(type);
  if (type_class == H5T_ENUM) {  // h5py writes booleans so
    const Identifier base = checked(H5Tget_super(type), "H5Tget_super");
    return scalar_of(base.get(), path, dataset);
  }
  if (type_class == H5T_FLOAT) {
    for (const FloatFormat& format : kFloats) {
      if (same_format(type, format)) return format.scalar;
    }
    throw DataError(
        path, dataset, -1,
        text("holds floating-point numbers of ", H5Tget_size(type),
             " bytes in a format that is not read; store it as float16, bfloat16, float32 or float64"));
  }
  if (type_class != H5T_INTEGER) {
    throw DataError(path, dataset, -1,
                    text("holds ", class_name(type_class), "; only plain numbers are read"));
  }
  const auto bytes = static_cast<std::int64_t>(H5Tget_size(type));
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  const bool whole = H5Tget_precision(type) == 8 * static_cast<std::size_t>(bytes);
  for (const Row& known : kScalars) {
    if (whole && known.integer && known.bytes == bytes && known.is_signed == is_signed) return known.scalar;
  }
  throw DataError(
      path, dataset, -1,
      text("holds integers of ", H5Tget_precision(type), " bits in ", bytes, " bytes, which are not read"));
}

}  // namespace lockstep::hdf5
