#include "app/dispatch.hpp"

#include <algorithm>
#include <iostream>

#include "base/error.hpp"
#include "base/text.hpp"
#include "mpi/environment.hpp"

namespace lockstep::app {

namespace {

struct Entry {
  const char* name;
  Job (*make)(const Arguments&);
};

constexpr Entry kCommands[] = {
    {"train", train},
    {"eval", eval},
    {"generate", generate},
    {"pack csv", pack_csv},
    {"pack text", pack_text},
    {"data inspect", data_inspect},
    {"data verify", data_verify},
    {"checkpoint ls", checkpoint_ls},
    {"checkpoint verify", checkpoint_verify},
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : kCommands) all.emplace_back(entry.name);
  return all;
}

/// Summaries of all commands whose names begin with `group`.
std::string list_of(const std::string& group) {
  std::string page;
  for (const auto& command : config::all_commands()) {
    if (!command.name.starts_with(group)) continue;
    page += text("  ", command.name, std::string(22 - command.name.size(), ' '), command.summary, "\n");
  }
  return page;
}

std::string overview() {
  return text(R"(lockstep: train models on sharded HDF5 data, in FP16, in step on every rank

Usage: lockstep COMMAND [flags]
       mpirun -np RANKS lockstep train|eval [flags]     one rank per GPU, or CPU ranks

Commands
)",
              list_of(""), R"(
lockstep COMMAND --help explains a command and its flags; lockstep --version tells the version.
)");
}

std::string version() {
  return text("lockstep ", LOCKSTEP_VERSION, " (", mpi::library_version(), ")\n");
}

bool is_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

[[noreturn]] void refuse(const Arguments& line) {
  const std::string known = text("commands: ", join(names(), ", "), " (lockstep --help explains)");
  if (line.empty()) throw UsageError("no command is given; " + known);
  if (line[0].starts_with("-")) {
    throw UsageError(text("the command comes first, flags follow it: '", line[0], "'; ", known));
  }
  // "pack csv" is two words, and either of them may be wrong or missing.
  const bool two = line.size() > 1 && !line[1].starts_with("-");
  const std::string close_to_two = two ? nearest(line[0] + " " + line[1], names()) : "";
  const std::string close = close_to_two.empty() ? nearest(line[0], names()) : close_to_two;
  const bool is_group = !list_of(line[0] + " ").empty();
  if (is_group && !two) throw UsageError(text("lockstep ", line[0], " needs a second word; ", known));
  throw UsageError(text("unknown command '", line[0], is_group ? " " + line[1] : "", "'; ",
                        close.empty() ? "" : text("did you mean ", close, "? "), known));
}

}  // namespace

Job print(const std::string& page) {
  return {.alone =
              [page] {
                std::cout << page << std::flush;
                return 0;
              },
          .on_ranks = {}};
}

bool asks_for_page(const Arguments& line) {
  const bool first = !line.empty() && (line[0] == "--version" || line[0] == "--help-markdown");
  return first || std::any_of(line.begin(), line.end(), is_help);
}

Job dispatch(const Arguments& line) {
  if (line.empty()) refuse(line);
  if (is_help(line[0])) return print(overview());
  if (line[0] == "--version") return print(version());
  if (line[0] == "--help-markdown") return print(config::flags_page());
  Arguments rest = line;
  std::replace(rest.begin(), rest.end(), std::string("-h"), std::string("--help"));
  for (const auto& entry : kCommands) {
    const auto words = split(entry.name, ' ');
    if (rest.size() < words.size() || !std::equal(words.begin(), words.end(), rest.begin())) continue;
    rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(words.size()));
    return entry.make(rest);
  }
  const std::string group = list_of(line[0] + " ");
  if (!group.empty() && line.size() > 1 && is_help(line[1])) return print("Commands\n" + group);
  refuse(line);
}

}  // namespace lockstep::app
