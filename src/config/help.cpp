#include "config/help.hpp"

#include <sstream>

#include "base/text.hpp"

namespace lockstep::config {

namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kColumn = 30;  // where the explanations begin

/// `words` of `line` from column `column` on, which the text already in `page` has reached; further lines
/// begin there.
void wrap(std::string& page, const std::string& line, std::size_t column) {
  std::size_t at = column;
  for (const auto& piece : split(line, ' ')) {
    if (at > column && at + 1 + piece.size() > kWidth) {
      page.append(1, '\n').append(column, ' ');
      at = column;
    } else if (at > column) {
      page += ' ';
      ++at;
    }
    page += piece;
    at += piece.size();
  }
  page += '\n';
}

void add_row(std::string& page, const std::string& left, const std::string& right) {
  page += "  " + left;
  if (left.size() + 4 > kColumn) {
    page.append(1, '\n').append(kColumn, ' ');
  } else {
    page.append(kColumn - 2 - left.size(), ' ');
  }
  wrap(page, right, kColumn);
}

std::string left_of(const Flag& flag) {
  if (flag.positional) return flag.value;
  if (std::holds_alternative<bool*>(flag.field)) return "--[no-]" + flag.name;
  return "--" + flag.name + " " + flag.value;
}

std::string right_of(const Flag& flag) {
  std::string line = flag.help;
  if (std::holds_alternative<Choice>(flag.field)) line += "; " + allowed(flag);
  const std::string value = value_text(flag);
  if (flag.required) return line + (flag.positional ? "" : " (required)");
  return value.empty() ? line : line + " [" + value + "]";
}

std::string default_of(const Flag& flag) {
  if (flag.required) return "required";
  const std::string value = value_text(flag);
  return value.empty() ? "none" : text("`", value, "`");
}

std::string escaped(const std::string& line) {
  return join(split(line, '|'), "\\|");
}

void add_markdown(std::string& page, const Command& command, const FlagTable& flags) {
  page += text("\n## lockstep ", command.name, "\n\n", command.summary, ".\n\n```\nlockstep ", command.name,
               " ", command.usage, "\n```\n");
  std::string group;
  for (const auto& flag : flags) {
    if (flag.group != group) {
      group = flag.group;
      page += text("\n### ", group, "\n\n");
      page += text("| flag | default | takes |", command.resumes ? " on resume |" : "", " meaning |\n");
      page += text("|---|---|---|", command.resumes ? "---|" : "", "---|\n");
    }
    const bool changes = flag.on_resume == OnResume::may_change;
    page += text("| ", text("`", escaped(left_of(flag)), "`"), " | ", default_of(flag), " | ",
                 escaped(allowed(flag)), " |",
                 !command.resumes ? ""
                 : changes        ? " may change |"
                                  : " must match |",
                 " ", escaped(flag.help), " |\n");
  }
}

template <class Settings>
std::string markdown_of() {
  Settings defaults;
  std::string page;
  add_markdown(page, describe(defaults), bind(defaults));
  return page;
}

}  // namespace

std::string help_text(const Command& command, const FlagTable& flags) {
  std::string page = text("lockstep ", command.name, ": ", command.summary, "\n\n");
  const std::string start = text("Usage: lockstep ", command.name, " ");
  page += start;
  wrap(page, command.usage, start.size());
  std::string group;
  for (const auto& flag : flags) {
    if (flag.group != group) {
      group = flag.group;
      page += text("\n", group, "\n");
    }
    add_row(page, left_of(flag), right_of(flag));
  }
  page += "\nGeneral\n";
  if (command.reads_ini) {
    add_row(page, "--config FILE.ini",
            "read settings from lines of the form flag = value; flags given here prevail");
  }
  add_row(page, "--help", "print this");
  return page;
}

std::vector<Command> all_commands() {
  return {
      describe(TrainSettings{}),      describe(EvalSettings{}),         describe(GenerateSettings{}),
      describe(PackCsvSettings{}),    describe(PackTextSettings{}),     describe(DataInspectSettings{}),
      describe(DataVerifySettings{}), describe(CheckpointLsSettings{}), describe(CheckpointVerifySettings{})};
}

std::string flags_page() {
  return R"(# Flags

Every flag of every command. This page is printed by `lockstep --help-markdown`; a test compares the two.

- `--flag value` and `--flag=value` mean the same. Names are written in full. A switch is turned off by
  `--no-flag`.
- `--config FILE.ini` reads settings from lines of the form `flag = value`, the flags without their dashes.
  `#` and `;` begin comments; a `[heading]` is for the reader only. A flag prevails over the file, the file
  over the default.
- A flag given twice, an unknown flag or key, and a value outside what the flag takes are errors.
- A run that resumes may change what "may change" says; any other difference from its `config.json` is an
  error.
)" + markdown_of<TrainSettings>() +
         markdown_of<EvalSettings>() + markdown_of<GenerateSettings>() + markdown_of<PackCsvSettings>() +
         markdown_of<PackTextSettings>() + markdown_of<DataInspectSettings>() +
         markdown_of<DataVerifySettings>() + markdown_of<CheckpointLsSettings>() +
         markdown_of<CheckpointVerifySettings>();
}

}  // namespace lockstep::config
