#include "base/error.hpp"

#include "base/text.hpp"

namespace lockstep {

ApiError::ApiError(std::string_view library, std::string_view call, long status, std::string_view words,
                   ExitCode code, SourceLine where)
    : Error(code, text(library, ": ", call, " failed with ", status, " (", words, ")"), where) {}

DataError::DataError(std::string_view path, std::string_view dataset, long row, std::string_view problem,
                     ExitCode code, SourceLine where)
    : Error(code,
            text(path, dataset.empty() ? "" : text(", dataset ", dataset), row < 0 ? "" : text(", row ", row),
                 ": ", problem),
            where) {}

TimeoutError::TimeoutError(std::string_view collective, long sequence, int rank, long bytes,
                           double waited_seconds, SourceLine where)
    : Error(ExitCode::internal,
            text(collective, " number ", sequence, " of ", bytes, " bytes did not finish on rank ", rank,
                 " within ", waited_seconds, " seconds"),
            where) {}

}  // namespace lockstep
