// Plugins as operators build and load them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>

#include "far/device.h"
#include "far/plugin.h"
#include "tests/devices/built.h"
#include "tests/devices/device_server.h"
#include "tests/support/scratch_folder.h"

namespace far {
namespace {

using testing_support::build;
using testing_support::code_of;
using testing_support::device_server;

// What farheapd says when it does not start.
std::string refusal(const scratch_folder& folder, const std::string& options) {
  const std::string out = folder.path() + "/out";
  const std::string command =
      "timeout 120 " FARHEAPD " --listen 127.0.0.1:0 --memory 64M " + options + " >" + out + " 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0) << options;
  std::ifstream file(out);
  return {std::istreambuf_iterator<char>(file), {}};
}

// With a compiler and the header alone, as docs/devices.md says.
TEST(Plugins, AreBuiltOutsideTheTree) {
  const scratch_folder folder;
  const std::string file = folder.path() + "/sorted.so";
  build(SOURCE "/examples/plugins/sorted.cc", file);
  const device_server server({"--memory", "64M", "--plugin", file});
  device made("tcp://" + server.host(), "sorted");
  made.write(1, {});
  EXPECT_TRUE(made.read(1).empty());
}

TEST(Plugins, AreAsTheDocumentSays) {
  const scratch_folder folder;
  const std::string page = SOURCE "/docs/devices.md";
  std::ofstream(folder.path() + "/counter.cc") << code_of(page, "#include <far/plugin.h>");
  build(folder.path() + "/counter.cc", folder.path() + "/counter.so");
  // The client is a shared object, too, whose symbols of Farheap are those of this program.
  std::ofstream(folder.path() + "/client.cc")
      << code_of(page, "#include <far/device.h>")
      << "extern \"C\" std::uint64_t run(const char* tier) { return add_twice(tier, 21); }\n";
  build(folder.path() + "/client.cc", folder.path() + "/client.so");
  void* const client = dlopen((folder.path() + "/client.so").c_str(), RTLD_NOW);
  ASSERT_NE(client, nullptr) << dlerror();
  const auto run = reinterpret_cast<std::uint64_t (*)(const char*)>(dlsym(client, "run"));
  ASSERT_NE(run, nullptr);
  const device_server server({"--memory", "64M", "--plugin", folder.path() + "/counter.so"});
  EXPECT_EQ(run(("tcp://" + server.host()).c_str()), 42u);
  EXPECT_EQ(run(("memory:?plugin=" + folder.path() + "/counter.so").c_str()), 42u);
}

TEST(Plugins, ThatAreNoneKeepAServerFromStarting) {
  const scratch_folder folder;
  EXPECT_NE(refusal(folder, "--plugin /nowhere/at-all.so").find("cannot load the plugin"), std::string::npos);
  const auto built = [&](const std::string& name, const std::string& text) {
    const std::string source = folder.path() + "/" + name + ".cc";
    std::ofstream(source) << text;
    build(source, folder.path() + "/" + name + ".so");
    return "--plugin " + folder.path() + "/" + name + ".so";
  };
  const std::string nothing = refusal(folder, built("nothing", "int nothing() { return 1; }\n"));
  EXPECT_NE(nothing.find("is no plugin"), std::string::npos) << nothing;
  const std::string of_later = refusal(folder, built("later",
                                                     "#include <far/plugin.h>\n"
                                                     "const far_device_functions* far_device_plugin(void) {\n"
                                                     "  static far_device_functions all{};\n"
                                                     "  all.interface_version = FAR_DEVICE_INTERFACE + 1;\n"
                                                     "  return &all;\n"
                                                     "}\n"));
  EXPECT_NE(of_later.find("version 2 of the interface, and this is version 1"), std::string::npos) << of_later;
  const std::string twice = refusal(folder, "--plugin " SORTED " --plugin " SORTED);
  EXPECT_NE(twice.find("another plugin 'sorted'"), std::string::npos) << twice;
  const std::string crashing = refusal(folder, built("crashing",
                                                     "#include <cstdlib>\n"
                                                     "static int gone = (std::abort(), 0);\n"
                                                     "int* where() { return &gone; }\n"));
  EXPECT_NE(crashing.find("it ended as it was loaded"), std::string::npos) << crashing;
}

// One of C, and of before far_device_failure().
TEST(Plugins, SayWhatTheyWriteInPlaceOfAResult) {
  const scratch_folder folder;
  std::ofstream(folder.path() + "/plain.cc") << R"(#include <far/plugin.h>
static int device;
static void* construct(const char*, const void*, size_t size) { return size > 0 ? nullptr : &device; }
static void destruct(void*) {}
static int read(void*, uint64_t object, const far_device_output* into) {
  into->append(into->context, "no\x1b", 3);
  return object == 0 ? FAR_DEVICE_NO_OBJECT : FAR_DEVICE_REFUSED;
}
static int write(void*, uint64_t, const void*, size_t) { return 77; }
static int erase(void*, uint64_t) { return FAR_DEVICE_OK; }
static int compute(void*, uint32_t, const void*, size_t, const far_device_output* into) {
  for (int i = 0; i < 2000; ++i) into->append(into->context, "x", 1);
  return FAR_DEVICE_REFUSED;
}
const far_device_functions* far_device_plugin(void) {
  static const far_device_functions all = {FAR_DEVICE_INTERFACE, "plain", "1", construct, destruct, read, write, erase,
                                           compute, nullptr, nullptr};
  return &all;
}
)";
  build(folder.path() + "/plain.cc", folder.path() + "/plain.so");
  const device_server server({"--memory", "64M", "--plugin", folder.path() + "/plain.so"});
  const std::string peer = "tcp://" + server.host();
  device made(peer, "plain");
  const auto text_of = [](auto call) -> std::string {
    try {
      call();
    } catch (const device_error& failure) {
      return failure.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(text_of([&] { static_cast<void>(made.read(1)); }), peer + ": refused: no\\x1b");
  EXPECT_EQ(text_of([&] { static_cast<void>(made.read(0)); }), peer + ": no such object");
  EXPECT_EQ(text_of([&] { made.write(1, {}); }), peer + ": refused");
  EXPECT_EQ(text_of([&] { made.compute(1); }), peer + ": refused: " + std::string(FAR_DEVICE_FAILURE_BYTES, 'x'));
  const std::byte parameter{};
  EXPECT_EQ(text_of([&] { device(peer, "plain", {.parameters = std::span(&parameter, 1)}); }),
            peer + ": refused: the plugin refuses the parameters");
}

TEST(Plugins, HaveOptionsThatMakeSense) {
  const scratch_folder folder;
  EXPECT_NE(refusal(folder, "--plugin " SORTED ":deadline=soon").find("no time for a call"), std::string::npos);
  EXPECT_NE(refusal(folder, "--plugin " SORTED ":deadline=61s").find("no time for a call"), std::string::npos);
  EXPECT_NE(refusal(folder, "--plugin " SORTED ":room=1").find("no memory for a device"), std::string::npos);
  EXPECT_NE(refusal(folder, "--plugin :room=1M").find("the file is missing"), std::string::npos);
}

}  // namespace
}  // namespace far
