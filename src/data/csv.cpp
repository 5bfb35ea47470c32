#include "data/csv.hpp"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace lockstep::data {

namespace {

std::string_view trimmed(std::string_view field) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = field.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return field.substr(first, field.find_last_not_of(kBlank) - first + 1);
}

std::optional<double> number(std::string_view field) {
  double value = 0;
  const auto [end, failure] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (failure != std::errc{} || end != field.data() + field.size() || field.empty()) return std::nullopt;
  return value;
}

class Parser {
 public:
  Parser(std::string_view content, const std::string& path, std::int64_t values_per_row,
         std::int64_t label_column)
      : content_(content), path_(path), values_(values_per_row), label_(label_column) {
    if (label_ < 0) label_ += values_ + 1;
    if (label_ < 0 || label_ > values_) {
      throw UsageError(
          text("label column ", label_column, " is outside of lines of ", values_, " values and a label"));
    }
  }

  CsvImages parse() {
    while (!content_.empty() && (content_.back() == '\n' || content_.back() == '\r'))
      content_.remove_suffix(1);
    while (!content_.empty()) {
      const std::size_t end = content_.find('\n');
      parse_line(trimmed(content_.substr(0, end)));
      content_.remove_prefix(end == std::string_view::npos ? content_.size() : end + 1);
    }
    if (images_.rows == 0) throw DataError(path_, "", -1, "holds no rows");
    return std::move(images_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError(path_, "", -1, text("line ", line_, " ", problem));
  }

  void split_line(std::string_view line) {
    fields_.clear();
    for (std::size_t end = line.find(','); end != std::string_view::npos; end = line.find(',')) {
      fields_.push_back(line.substr(0, end));
      line.remove_prefix(end + 1);
    }
    fields_.push_back(line);
  }

  void parse_line(std::string_view line) {
    ++line_;
    split_line(line);
    const auto label_index = static_cast<std::size_t>(label_);
    if (line_ == 1 && (label_index >= fields_.size() || !number(trimmed(fields_[label_index])))) {
      images_.skipped_header = true;
      return;
    }
    if (static_cast<std::int64_t>(fields_.size()) != values_ + 1) {
      refuse(text("has ", fields_.size(), " fields, not ", values_ + 1, " (", values_,
                  " values and the label)"));
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (i == label_index)
        images_.labels.push_back(label(fields_[i], i));
      else
        images_.values.push_back(static_cast<std::uint8_t>(whole(fields_[i], i, 255)));
    }
    images_.lines.push_back(line_);
    ++images_.rows;
  }

  std::int64_t label(std::string_view field, std::size_t column) const {
    constexpr std::int64_t kMaximumLabel = (std::int64_t{1} << 31) - 1;  // stored as int32 at most
    return whole(field, column, kMaximumLabel);
  }

  std::int64_t whole(std::string_view field, std::size_t column, std::int64_t maximum) const {
    field = trimmed(field);
    std::int64_t value = -1;
    const auto [end, failure] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (failure != std::errc{} || end != field.data() + field.size()) {
      const std::optional<double> real = number(field);
      if (!real)
        refuse(text("holds \"", field.substr(0, 40), "\" in column ", column, ", which is no number"));
      value = std::floor(*real) == *real && std::abs(*real) < 1e15 ? static_cast<std::int64_t>(*real) : -1;
    }
    if (value < 0 || value > maximum) {
      refuse(
          text("holds ", field, " in column ", column, "; whole numbers from 0 to ", maximum, " are read"));
    }
    return value;
  }

  std::string_view content_;
  const std::string& path_;
  std::int64_t values_;
  std::int64_t label_;
  std::int64_t line_ = 0;
  std::vector<std::string_view> fields_;
  CsvImages images_;
};

}  // namespace

CsvImages parse_csv(std::string_view content, const std::string& path, std::int64_t values_per_row,
                    std::int64_t label_column) {
  return Parser(content, path, values_per_row, label_column).parse();
}

}  // namespace lockstep::data
