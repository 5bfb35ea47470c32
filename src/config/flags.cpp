#include "config/flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::config {

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

struct Unit {
  const char* suffix;
  std::int64_t bytes;
};
constexpr Unit kUnits[] = {{"GiB", 1ll << 30}, {"MiB", 1ll << 20}, {"KiB", 1ll << 10}};

// Shortest text that reads back to the same bits.
template <class Number>
std::string number_text(Number value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

std::string bytes_text(std::int64_t bytes) {
  for (const auto& unit : kUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0) return number_text(bytes / unit.bytes) + unit.suffix;
  }
  return number_text(bytes);
}

std::string range_text(const Range& range) {
  std::string line;
  if (std::isfinite(range.least)) line += text(range.least_open ? " > " : " >= ", number_text(range.least));
  if (std::isfinite(range.most)) {
    line += text(line.empty() ? "" : " and", range.most_open ? " < " : " <= ", number_text(range.most));
  }
  return line;
}

bool holds(const Range& range, double value) {
  return (range.least_open ? value > range.least : value >= range.least) &&
         (range.most_open ? value < range.most : value <= range.most);
}

// What the row holds as a number, for its range; nothing for texts, switches and words.
double as_number(const Field& field, bool& is_number) {
  is_number = true;
  return std::visit(Overloaded{[](std::int64_t* member) { return static_cast<double>(*member); },
                               [](std::uint64_t* member) { return static_cast<double>(*member); },
                               [](double* member) { return *member; },
                               [](const Bytes& bytes) { return static_cast<double>(*bytes.member); },
                               [&](const auto&) {
                                 is_number = false;
                                 return 0.0;
                               }},
                    field);
}

[[noreturn]] void refuse(const Flag& flag, const std::string& value, const std::string& place,
                         const std::string& more = "") {
  throw UsageError(text(place, ": '", value, "' is not allowed; give ", allowed(flag), more));
}

template <class Number>
Number read_number(const Flag& flag, const std::string& value, const std::string& place) {
  Number number{};
  const char* const end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, number);
  if (result.ec == std::errc::result_out_of_range && result.ptr == end) {
    if constexpr (std::is_floating_point_v<Number>)
      refuse(flag, value, place, ", within the range of a double");
    refuse(flag, value, place, text(", at most ", std::numeric_limits<Number>::max()));
  }
  if (result.ec != std::errc() || result.ptr != end) refuse(flag, value, place);
  if (!std::isfinite(static_cast<double>(number)) || !holds(flag.range, static_cast<double>(number))) {
    refuse(flag, value, place);
  }
  return number;
}

std::int64_t read_bytes(const Flag& flag, const std::string& value, const std::string& place) {
  std::string digits = value;
  std::int64_t factor = 1;
  for (const auto& unit : kUnits) {
    if (!digits.ends_with(unit.suffix)) continue;
    digits.resize(digits.size() - std::char_traits<char>::length(unit.suffix));
    factor = unit.bytes;
    break;
  }
  std::int64_t count = 0;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, count);
  std::int64_t bytes = 0;
  if (result.ec != std::errc() || result.ptr != end || __builtin_mul_overflow(count, factor, &bytes) ||
      !holds(flag.range, static_cast<double>(bytes))) {
    refuse(flag, value, place);
  }
  return bytes;
}

bool read_switch(const Flag& flag, const std::string& value, const std::string& place) {
  for (const char* yes : {"yes", "on", "true", "1"}) {
    if (value == yes) return true;
  }
  for (const char* no : {"no", "off", "false", "0"}) {
    if (value == no) return false;
  }
  refuse(flag, value, place);
}

std::size_t read_word(const Flag& flag, const Choice& choice, const std::string& value,
                      const std::string& place) {
  const auto found = std::find(choice.words->begin(), choice.words->end(), value);
  if (found == choice.words->end()) refuse(flag, value, place);
  return static_cast<std::size_t>(found - choice.words->begin());
}

// Settings are compared and stored a line each, so a line break inside one would hide what follows it.
std::string read_line(const std::string& value, const std::string& place) {
  for (const char letter : value) {
    if (static_cast<unsigned char>(letter) < ' ') {
      throw UsageError(text(place, ": the text holds a line break or another control character; remove it"));
    }
  }
  return value;
}

}  // namespace

Range at_least(double least) {
  return {.least = least};
}
Range above(double least) {
  return {.least = least, .least_open = true};
}
Range from_to(double least, double most) {
  return {.least = least, .most = most};
}
Range from_to_below(double least, double most) {
  return {.least = least, .most = most, .most_open = true};
}
Range between(double least, double most) {
  return {.least = least, .most = most, .least_open = true, .most_open = true};
}

Flag& FlagTable::add(const std::string& name, const std::string& value, Field field,
                     const std::string& help) {
  return rows_.emplace_back(
      Flag{.group = group_, .name = name, .value = value, .field = std::move(field), .help = help});
}

const Flag* FlagTable::find(const std::string& name) const {
  for (const auto& row : rows_) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string> FlagTable::names() const {
  std::vector<std::string> names;
  for (const auto& row : rows_) names.push_back(row.name);
  return names;
}

std::string allowed(const Flag& flag) {
  const std::string range = range_text(flag.range);
  return std::visit(
      Overloaded{
          [&](std::string*) { return flag.value; }, [&](std::int64_t*) { return "an integer" + range; },
          [&](std::uint64_t*) -> std::string { return "an integer" + (range.empty() ? " >= 0" : range); },
          [&](double*) { return "a number" + range; }, [](bool*) -> std::string { return "yes or no"; },
          [&](const Bytes&) { return "a number of bytes such as 65536, 64KiB, 1MiB or 2GiB," + range; },
          [](const Choice& choice) { return "one of " + join(*choice.words, ", "); }},
      flag.field);
}

std::string value_text(const Flag& flag) {
  return std::visit(Overloaded{[](std::string* member) { return *member; },
                               [](bool* member) -> std::string { return *member ? "yes" : "no"; },
                               [](const Bytes& bytes) { return bytes_text(*bytes.member); },
                               [](const Choice& choice) { return (*choice.words)[choice.get()]; },
                               [](auto* number) { return number_text(*number); }},
                    flag.field);
}

void assign(const Flag& flag, const std::string& value, const std::string& place) {
  std::visit(Overloaded{[&](std::string* member) { *member = read_line(value, place); },
                        [&](bool* member) { *member = read_switch(flag, value, place); },
                        [&](const Bytes& bytes) { *bytes.member = read_bytes(flag, value, place); },
                        [&](const Choice& choice) { choice.set(read_word(flag, choice, value, place)); },
                        [&](auto* number) {
                          using Number = std::remove_reference_t<decltype(*number)>;
                          *number = read_number<Number>(flag, value, place);
                        }},
             flag.field);
}

void check_range(const Flag& flag, const std::string& place) {
  bool is_number = false;
  const double number = as_number(flag.field, is_number);
  if (is_number && (!std::isfinite(number) || !holds(flag.range, number)))
    refuse(flag, value_text(flag), place);
}

bool is_missing(const Flag& flag) {
  if (!flag.required) return false;
  bool is_number = false;
  const double number = as_number(flag.field, is_number);
  if (is_number) return number == 0;
  const auto* line = std::get_if<std::string*>(&flag.field);
  return line != nullptr && (*line)->empty();
}

}  // namespace lockstep::config
