#include "config/shape.hpp"

#include "config/message.hpp"
#include "support/catch.hpp"

using namespace lockstep;
using lockstep::config::read_shape;

TEST_CASE("a shape is sizes joined by x or commas") {
  CHECK(read_shape("1x28x28", "--shape") == std::vector<std::int64_t>{1, 28, 28});
  CHECK(read_shape("3,32,32", "--shape") == std::vector<std::int64_t>{3, 32, 32});
  CHECK(read_shape("30", "--shape") == std::vector<std::int64_t>{30});
}

TEST_CASE("what is no shape is refused with the value") {
  for (const char* bad : {"", "x", "1x", "x1", "1x-28", "0x3", "1x28,28", "1x2x3x4x5", "65536x65536", "28 28",
                          "1X2", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK(test::failure([&] { read_shape(bad, "--shape"); }) ==
          std::string("64 --shape: '") + bad +
              "' is not allowed; give up to 4 sizes joined by x, such as 1x28x28");
  }
}
