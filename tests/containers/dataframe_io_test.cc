// Data frames from text, and to and from Arrow's C data interface. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/arrow.h"
#include "far/csv.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

// A release() of what the test frees itself.
template <typename Struct>
void keep(Struct*) {}

class dataframe_io : public heap::real_pager_test<> {
 protected:
  dataframe_io() {
    runtime_options chosen = heap::small_runtime(16 * mib);
    chosen.far = "memory:";
    home_ = std::make_unique<runtime>(chosen);
  }

  dataframe read(const std::string& text, const csv_options& how = {}) {
    std::istringstream from(text);
    return read_csv(*home_, from,
                    {{"id", column_type::int64},
                     {"km", column_type::float64},
                     {"stored", column_type::boolean},
                     {"at", column_type::time},
                     {"vendor", column_type::text}},
                    how);
  }
  void expect_error(const std::string& text, const std::string& said) {
    try {
      static_cast<void>(read(text));
      ADD_FAILURE() << text;
    } catch (const csv_error& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
  static void expect_same(const dataframe& a, const dataframe& b) {
    ASSERT_EQ(a.rows(), b.rows());
    ASSERT_EQ(a.names(), b.names());
    for (const std::string& name : a.names()) {
      ASSERT_EQ(a[name].type(), b[name].type());
      for (std::size_t row = 0; row < a.rows(); ++row) ASSERT_EQ(a[name].at(row), b[name].at(row)) << name << row;
    }
  }

  std::unique_ptr<runtime> home_;
  const std::string header_ = "id,vendor,unused,at,stored,km\n";
};

TEST_F(dataframe_io, reads_text) {
  const dataframe frame = read(header_ +
                               "-7,yellow,x,2016-03-14 17:24:55,true,0.125\r\n"
                               "9223372036854775807,\"a \"\"b\"\",\nc\",,1969-12-31T23:59:59,0,1e-3\n"
                               ",\"\",,,,\n"
                               "5,last,,2000-02-29 00:00:00,false,-2");
  ASSERT_EQ(frame.rows(), 4u);
  EXPECT_EQ(frame["id"].at(0), cell(std::int64_t{-7}));
  EXPECT_EQ(frame["vendor"].at(0), cell("yellow"));
  EXPECT_EQ(frame["at"].at(0), cell(timestamp{1'457'976'295}));
  EXPECT_EQ(frame["stored"].at(0), cell(true));
  EXPECT_EQ(frame["km"].at(0), cell(0.125));
  EXPECT_EQ(frame["id"].at(1), cell(INT64_MAX));
  EXPECT_EQ(frame["vendor"].at(1), cell("a \"b\",\nc"));
  EXPECT_EQ(frame["at"].at(1), cell(timestamp{-1}));
  EXPECT_EQ(frame["km"].at(1), cell(1e-3));
  EXPECT_EQ(frame["vendor"].at(2), cell("")) << "quotes make an empty text of null";
  for (const char* name : {"id", "at", "stored", "km"}) EXPECT_EQ(frame[name].at(2), cell(null)) << name;
  EXPECT_EQ(frame["km"].at(3), cell(-2.0));
  EXPECT_EQ(frame["at"].max(), cell(timestamp{1'457'976'295}));
  EXPECT_EQ(frame["at"].rows_between(timestamp{0}, null).size(), 2u);
}

TEST_F(dataframe_io, refuses_text_that_is_wrong_and_says_where) {
  expect_error("", "no names of columns");
  expect_error("id,vendor,at,stored\n", "no column 'km'");
  const std::string good = "1,a,,2016-03-14 17:24:55,1,1\n";
  expect_error(header_ + good + "1,a,,2016-03-14 17:24:55,1\n", "line 3: 5 fields");
  expect_error(header_ + good + "1,a,,2016-03-14 17:24:55,1,1,1\n", "line 3: 7 fields");
  expect_error(header_ + "1,\"two\nlines\",,,,\n" + "1x,a,,,,\n", "line 4: '1x' in the column 'id'");
  for (const char* bad : {"9223372036854775808", "-9223372036854775808", "1.0", " 1", "+-1", "++1", "+"}) {
    expect_error(header_ + bad + ",a,,,,\n", "line 2: ");
  }
  for (const char* bad : {"2016-02-30 00:00:00", "2016-02-30", "2016-01-01 24:00:00", "2016-01-01 00:00:0a",
                          "2016-01-01 00:00:00.5", "2016-01-01T00:00:00Z", "2016-01-01 00:00:00+01:00"}) {
    expect_error(header_ + "1,a,," + bad + ",,\n", "'at' is no value of the type time");
  }
  expect_error(header_ + "1,a,,,yes,\n", "'yes' in the column 'stored'");
  expect_error(header_ + "1,a,,,,1.5km\n", "'km'");
  expect_error(header_ + "1,\"a,,,,\n", "does not end");
  expect_error(header_ + "1,\"a\"b,,,,\n", "behind the end");
  expect_error(header_ + "1,a\"b\",,,,\n", "a quote inside");
  EXPECT_EQ(read("id;vendor;unused;at;stored;km\n1;a,b;;;;\n", {.separator = ';'})["vendor"].at(0), cell("a,b"));
  // Outside ASCII, as in Latin-1.
  EXPECT_EQ(read("id\xa7vendor\xa7"
                 "at\xa7stored\xa7km\n1\xa7"
                 "b\xa7\xa7\xa7\n",
                 {.separator = '\xa7'})
                .rows(),
            1u);
}

// As pandas and R write them, and as pandas reads them.
TEST_F(dataframe_io, reads_what_others_write) {
  struct {
    column_type type;
    std::string field;
    cell expected;
  } const table[] = {
      {column_type::int64, "+7", 7},
      {column_type::int64, "-0", 0},
      {column_type::int64, "-9223372036854775807", -INT64_MAX},
      {column_type::int64, "\"7\"", 7},
      {column_type::int64, "\"\"", null},
      {column_type::float64, "+1.5", 1.5},
      {column_type::float64, "-0.0", -0.0},
      {column_type::float64, "nan", null},
      {column_type::float64, "-inf", -std::numeric_limits<double>::infinity()},
      {column_type::float64, "9007199254740993", 9007199254740992.0},
      {column_type::float64, "\"\"", null},
      {column_type::boolean, "True", true},
      {column_type::boolean, "FALSE", false},
      {column_type::boolean, "\"\"", null},
      {column_type::time, "2016-03-14", timestamp{1'457'913'600}},
      {column_type::time, "1900-03-01", timestamp{-2'203'891'200}},
      {column_type::time, "9999-12-31 23:59:59", timestamp{253'402'300'799}},
      {column_type::time, "\"\"", null},
      {column_type::text, "\"two\r\nlines, and a \"\"quote\"\"\"", "two\r\nlines, and a \"quote\""},
      {column_type::text, "\"\"", ""},
      {column_type::text, "nan", "nan"},
  };
  for (const auto& [type, field, expected] : table) {
    // Of two columns of one name, the first.
    std::istringstream from("x,x\r\n" + field + ",?\r\n" + field + ",?");
    const dataframe frame = read_csv(*home_, from, {{"x", type}});
    ASSERT_EQ(frame.rows(), 2u) << field;
    EXPECT_EQ(frame["x"].at(0), expected) << field;
    EXPECT_EQ(frame["x"].at(1), expected) << field;
  }
  // Without rows, and an empty line, which is a record with one empty field.
  for (const auto& [text, rows] : {std::pair("x", 0u), {"x\n", 0u}, {"x\n\n", 1u}, {"\"x\"\n1\n\n2\n", 3u}}) {
    std::istringstream from(text);
    const dataframe frame = read_csv(*home_, from, {{"x", column_type::int64}});
    EXPECT_EQ(frame.rows(), rows) << text;
    EXPECT_EQ(frame["x"].count(), rows == 3 ? 2u : 0u) << text;
  }
}

// What no double is near is 0 or refused; what one is near is read as pandas reads it.
TEST_F(dataframe_io, reads_numbers_at_the_limits_of_floating_point) {
  const auto km = [&](const std::string& text) {
    std::istringstream from("km\n" + text + "\n");
    return std::get<double>(read_csv(*home_, from, {{"km", column_type::float64}})["km"].at(0));
  };
  const std::string zeros(400, '0');
  const std::vector<std::string> too_small = {"1e-400",
                                              "2e-324",
                                              "1e-99999999999999999999",
                                              "0.00001e-320",
                                              "1" + zeros + "e-900",
                                              "0." + zeros + "1",
                                              "0." + zeros + zeros + "1e+300"};
  for (const std::string& text : too_small) {
    EXPECT_EQ(km(text), 0) << text;
    EXPECT_FALSE(std::signbit(km(text))) << text;
    EXPECT_TRUE(std::signbit(km("-" + text))) << text;
  }
  EXPECT_EQ(km("4e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(km("1.7976931348623157e308"), std::numeric_limits<double>::max());
  EXPECT_EQ(km("0." + zeros + "1e401"), 1);
  EXPECT_EQ(km("inf"), std::numeric_limits<double>::infinity());
  const std::vector<std::string> refused = {"1e400",
                                            "-1e400",
                                            "1.7976931348623159e308",
                                            "1e99999999999999999999",
                                            "1" + zeros,
                                            "1" + zeros + "e-10",
                                            "0." + zeros + "1e900",
                                            "1e-400x",
                                            "1e400e-900"};
  for (const std::string& text : refused) {
    EXPECT_THROW(static_cast<void>(km(text)), csv_error) << text;
  }
}

TEST_F(dataframe_io, does_not_take_a_separator_for_the_end_of_the_text) {
  const csv_options how{.separator = '\xff'};
  const dataframe frame = read(
      "id\xffvendor\xff"
      "at\xffstored\xffkm\n1\xff"
      "b\xff\xff\xff",
      how);
  ASSERT_EQ(frame.rows(), 1u);
  EXPECT_EQ(frame["vendor"].at(0), cell("b"));
}

TEST_F(dataframe_io, reads_text_with_a_byte_order_mark) {
  const std::string rows = "1,a,,2016-03-14 17:24:55,true,1.5\n";
  expect_same(read("\xef\xbb\xbf" + header_ + rows), read(header_ + rows));
  expect_same(read("\xef\xbb\xbf\"id\"" + header_.substr(2) + rows), read(header_ + rows));
  // U+FF49 begins as the mark does.
  std::istringstream wide("\xef\xbd\x89\n7\n");
  const dataframe frame = read_csv(*home_, wide, {{"\xef\xbd\x89", column_type::int64}});
  EXPECT_EQ(frame.rows(), 1u);
}

// A file on a disk that fails after the first lines.
TEST_F(dataframe_io, does_not_take_an_error_for_the_end_of_the_text) {
  struct failing_buffer : std::stringbuf {
    using std::stringbuf::stringbuf;
    int_type underflow() override {
      const int_type next = std::stringbuf::underflow();
      if (next == traits_type::eof()) throw std::ios_base::failure("input/output error");
      return next;
    }
  } failing("id\n1\n2\n");
  std::istream from(&failing);
  EXPECT_THROW(static_cast<void>(read_csv(*home_, from, {{"id", column_type::int64}})), csv_error);
}

TEST_F(dataframe_io, imports_columns_without_a_name) {
  dataframe made(*home_);
  made.add("x", column_type::int64);
  made.append({std::int64_t{5}});
  ArrowSchema schema;
  ArrowArray array;
  export_to_arrow(made, 0, 1, schema, array);
  const char* const name = std::exchange(schema.children[0]->name, nullptr);
  dataframe back(*home_);
  import_from_arrow(schema, array, back);
  import_from_arrow(schema, array, back);
  EXPECT_EQ(back.names(), std::vector<std::string>{""});
  EXPECT_EQ(back.rows(), 2u);
  schema.children[0]->name = name;
  // Two of one name: the frame stays without columns.
  ArrowSchema* twice_schemas[] = {schema.children[0], schema.children[0]};
  ArrowArray* twice_arrays[] = {array.children[0], array.children[0]};
  ArrowSchema twice_schema = schema;
  ArrowArray twice_array = array;
  twice_schema.n_children = twice_array.n_children = 2;
  twice_schema.children = twice_schemas;
  twice_array.children = twice_arrays;
  dataframe none(*home_);
  EXPECT_THROW(import_from_arrow(twice_schema, twice_array, none), std::invalid_argument);
  EXPECT_EQ(none.names().size(), 0u);
  schema.release(&schema);
  array.release(&array);
}

TEST_F(dataframe_io, crosses_the_arrow_interface_and_comes_back) {
  std::string text = header_;
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i * 37 % 101);
    text += i % 7 == 0 ? ",,,,,\n"
                       : number + ",v" + std::to_string(i % 5) + ",,2016-03-14 17:24:" + std::to_string(10 + i % 50) +
                             "," + (i % 3 == 0 ? "1," : "0,") + number + ".5\n";
  }
  const dataframe frame = read(text);
  home_->evict_all();
  dataframe back(*home_);
  for (std::size_t first = 0; first < frame.rows(); first += 70) {
    ArrowSchema schema;
    ArrowArray array;
    export_to_arrow(frame, first, std::min<std::size_t>(70, frame.rows() - first), schema, array);
    EXPECT_EQ(std::string(schema.format), "+s");
    EXPECT_EQ(schema.n_children, 5);
    EXPECT_EQ(array.children[0]->null_count, static_cast<std::int64_t>((array.length + 6) / 7)) << first;
    import_from_arrow(schema, array, back);
    // A consumer may move a child away, and release it later.
    ArrowArray moved = *array.children[1];
    array.children[1]->release = nullptr;
    array.release(&array);
    schema.release(&schema);
    EXPECT_EQ(array.release, nullptr);
    EXPECT_EQ(schema.release, nullptr);
    EXPECT_EQ(moved.n_buffers, 2);
    moved.release(&moved);
  }
  expect_same(frame, back);
  ArrowSchema schema;
  ArrowArray array;
  EXPECT_THROW(export_to_arrow(frame, 0, frame.rows() + 1, schema, array), std::out_of_range);
}

// Arrow's "u" is UTF-8. A column may have other texts, which stay here.
TEST_F(dataframe_io, exports_no_texts_that_are_not_utf8) {
  const auto is_exported = [&](const std::string& text) {
    dataframe made(*home_);
    made.add("good", column_type::text);
    made.add("name", column_type::text);
    made.append({"z\xc3\xbcrich", text});
    ArrowSchema schema;
    ArrowArray array;
    try {
      export_to_arrow(made, 0, 1, schema, array);
    } catch (const std::invalid_argument& refused) {
      EXPECT_NE(std::string(refused.what()).find("'name'"), std::string::npos) << refused.what();
      return false;
    }
    schema.release(&schema);
    array.release(&array);
    return true;
  };
  for (const char* const good :
       {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xf0\x9f\x98\x80z"}) {
    EXPECT_TRUE(is_exported(good)) << good;
  }
  EXPECT_TRUE(is_exported(std::string("a\0b", 3)));
  for (const char* const bad : {"\x80", "\xff", "z\xfcrich", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf",
                                "\xed\xa0\x80", "\xe2\x82", "\xe2\x82z", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                                "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xf0\x9f\x98z", "\xc3\xbc\xbc"}) {
    EXPECT_FALSE(is_exported(bad)) << bad;
  }
}

// As other libraries export it: narrower integers, plain texts, an offset, and no bitmap where there are no nulls.
TEST_F(dataframe_io, imports_other_types_and_refuses_those_that_it_does_not_have) {
  const std::int16_t shorts[] = {1, 2, -3, 4};
  const std::int32_t offsets[] = {0, 1, 3, 3, 6};
  const char texts[] = "abbccc";
  const std::uint8_t valid[] = {0b1011};
  const void* short_buffers[] = {nullptr, shorts};
  const void* text_buffers[] = {valid, offsets, texts};
  const void* no_buffers[] = {nullptr};
  ArrowArray arrays[] = {{4, 0, 0, 2, 0, short_buffers, nullptr, nullptr, keep<ArrowArray>, nullptr},
                         {4, 1, 0, 3, 0, text_buffers, nullptr, nullptr, keep<ArrowArray>, nullptr}};
  ArrowSchema schemas[] = {{"s", "number", nullptr, 0, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr},
                           {"u", "text", nullptr, 2, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr}};
  ArrowArray* array_children[] = {&arrays[0], &arrays[1]};
  ArrowSchema* schema_children[] = {&schemas[0], &schemas[1]};
  const ArrowArray array{3, 0, 1, 1, 2, no_buffers, array_children, nullptr, keep<ArrowArray>, nullptr};
  const ArrowSchema schema{"+s", "", nullptr, 0, 2, schema_children, nullptr, keep<ArrowSchema>, nullptr};
  dataframe frame(*home_);
  import_from_arrow(schema, array, frame);
  ASSERT_EQ(frame.rows(), 3u);
  EXPECT_EQ(frame["number"].at(1), cell(std::int64_t{-3}));
  EXPECT_EQ(frame["text"].at(0), cell("bb"));
  EXPECT_EQ(frame["text"].at(1), cell(null));
  EXPECT_EQ(frame["text"].at(2), cell("ccc"));
  // The same rows, by offsets of the columns.
  arrays[0].offset = arrays[1].offset = 1;
  const ArrowArray shifted{3, 0, 0, 1, 2, no_buffers, array_children, nullptr, keep<ArrowArray>, nullptr};
  dataframe again(*home_);
  import_from_arrow(schema, shifted, again);
  expect_same(frame, again);
  arrays[0].offset = arrays[1].offset = 0;
  schemas[0].format = "d:19,10";
  EXPECT_THROW(import_from_arrow(schema, array, frame), std::invalid_argument);
  schemas[0].format = "g";
  EXPECT_THROW(import_from_arrow(schema, array, frame), std::invalid_argument) << "another type than before";
  // A dictionary with an index that it does not have.
  schemas[0].format = "s";
  schemas[0].dictionary = &schemas[1];
  arrays[0].dictionary = &arrays[1];
  dataframe other(*home_);
  EXPECT_THROW(import_from_arrow(schema, array, other), std::invalid_argument);
  EXPECT_EQ(frame.rows(), 3u);
}

}  // namespace
}  // namespace far
