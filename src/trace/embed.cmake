# cmake -DOUTPUT=FILE.cc "-DFILES=A;B" -P embed.cmake: makes far::trace::page_file(name), which finds A and B by name.
set(arrays "")
set(choices "")
set(number 0)
foreach(file ${FILES})
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  get_filename_component(name ${file} NAME)
  string(APPEND arrays "constexpr unsigned char file_${number}[] = {${bytes}};\n")
  string(APPEND choices "  if (name == \"${name}\") return {reinterpret_cast<const char*>(file_${number}), sizeof(file_${number})};\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT}
"// Made by embed.cmake.
#include \"trace/page_files.h\"
namespace far::trace {
namespace {
${arrays}}  // namespace
std::string_view page_file(std::string_view name) {
${choices}  return {};
}
}  // namespace far::trace
")
